"""Export to Hugging Face transformers: the folder other tools load, checked against the model it came from."""

from stoker.model.huggingface.architectures import architecture_for
from stoker.model.huggingface.export import ExportReport, export_model
from stoker.model.huggingface.parity import Parity

__all__ = ["ExportReport", "Parity", "architecture_for", "export_model"]
