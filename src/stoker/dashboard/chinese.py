"""What findings say, in Chinese: remedies, meanings of causes, evidence. The page has both languages."""

from __future__ import annotations

import re
from typing import Any

from stoker.diagnosis.finding import Remedy

REMEDIES: dict[str, str] = {
    "none": "无需处理：已经过去",
    "watch": "暂不处理：稍后再运行 `stoker diagnose`",
    "look_at_samples": "查看这些步的文档：`stoker data show RUN --step {step}`",
    "skip_samples": (
        "查看文档（`stoker data show RUN --step {step}`）；若要训练自行跳过这样的步，"
        "设置 `recovery.on_spike: rollback`"
    ),
    "roll_back": (
        "回到第 {step} 步之前的检查点，跳过这些步或降低学习率再继续：`recovery.on_divergence: rollback`、"
        "`recovery.lower_learning_rate`"
    ),
    "use_bf16": "从第 {step} 步之前起改用 bf16 训练（`training.precision`），其数值范围不需要损失缩放",
    "clip_or_lower_rate": (
        "趁损失还没有跟着上升，调低 `training.gradient_clip` 或学习率；保留第 {step} 步之前的检查点"
    ),
    "check_learning_rate": "把第 {step} 步的学习率与原定的调度对照",
    "check_mixture": "对照第 {step} 步前后的配比与各来源的文本",
    "check_for_repeats": "确认从第 {step} 步起的文本没有重复，也不比之前容易得多",
    "check_phase": "查明从第 {step} 步起是什么拖慢了{phase}",
    "check_machine": "换下进程 {ranks} 所在的机器，或对它做测试：`stoker bench collectives`",
    "find_leak": "查明是什么占住了内存：照此速度，每 1,000 步多占 {growth_bytes_per_1000_steps} 字节",
    "balance_experts": "加强专家均衡（`model.moe.auxiliary_loss`），并回到第 {step} 步之前",
    "stop_or_add_data": "停在第 {step} 步的检查点（留出集上最好的一个），或加入别的文本",
    "check_sampler": (
        "查明第 {step} 步的样本从何而来：只有采样器自身不保存状态，训练才会按配方与步数所定的顺序继续；"
        "回到第 {step} 步之前"
    ),
    "check_accumulation": ("查明从第 {step} 步起微批次的损失除以了什么：应当是该步全部微批次、全部进程的词元总数"),
    "check_optimizer_state": (
        "回到第 {step} 步之前、含有优化器状态的检查点，并加载该状态：`stoker train` 会这样做"
    ),
    "limit_logits": "对查询与键做归一化（`model.qk_norm`），降低学习率，或回到第 {step} 步之前",
    "check_length": "若从第 {step} 步起本就要换序列长度，则无需处理",
    "check_network": ("测试进程之间的网络（`stoker bench collectives`），并查看从第 {step} 步起还有谁在使用它"),
    "leave_out_documents": (
        "剔除这些文档：`stoker data show RUN --step {step}` 会列出它们，在 `data` 中加一个过滤器可挡住这类文本，"
        "`recovery.on_spike: rollback` 则会跳过这样的步"
    ),
    "longer_warmup": (
        "用更长的 `training.schedule.warmup_steps` 或更低的学习率重新开始；第 {step} 步时优化器的滑动平均尚未形成"
    ),
    "set_clip": "设置 `training.gradient_clip`，并回到第 {step} 步之前",
    "feed_faster": "加快批次的准备：查看从第 {step} 步起进程 {ranks} 的存储与处理器",
    "cool_machine": "换下进程 {ranks} 所在的机器，或检查它的温度、功率与时钟频率",
    "check_storage": "腾出空间或修复存储；较早的检查点仍然完好",
    "layout_changed": "若本就要换布局，则无需处理；`stoker plan` 会给出它的预期表现",
    "recovered": "无需处理：训练{how}已经继续；若再次出现，{then}",
    "recovered_often": "每次训练都已继续，但问题反复出现：{then}",
    "go_on": "同一条命令会从最新的副本或检查点继续",
    "read_failure": "查看失败的原因；同一条命令会从最新的检查点继续",
    "check_progress": "查看训练是否还在继续，以及它在等待什么",
}
"""By `action`, with the arguments of `stoker.diagnosis.remedies.REMEDIES`."""

PHRASES: dict[str, str] = {
    "by itself": "自行恢复后",
    "when it was started again": "在重新启动后",
    "see in the machine's log whether memory ran out, or who killed it": "查看机器日志：是内存耗尽，还是被谁杀死",
    "let it need less: `stoker plan` says how": "减少内存需求：`stoker plan` 会说明办法",
    "look where the ranks waited for each other, and test the machine: `stoker bench collectives`": (
        "查看各进程在何处互相等待，并测试机器：`stoker bench collectives`"
    ),
    "test that node and its network": "测试该节点及其网络",
    "read what failed": "查看失败的原因",
    "forward, backward and optimizer": "前向、反向与优化器",
    "waiting for data": "等待数据",
    "a step that no phase has": "一步中不属于任何阶段的部分",
    "waiting for other ranks": "等待其他进程",
    "steps": "各步",
    "data": "数据读取",
    "forward": "前向",
    "backward": "反向",
    "communication": "通信",
    "optimizer": "优化器",
}
"""Arguments of remedies that are words."""

MEANINGS: dict[str, str] = {
    "garbled_text": (
        "损失恰在含有这些文档的那一步跳升，之后回落。文档中有替换字符、控制字符、被当作 Latin-1 读入的 UTF-8，"
        "或字母与符号混杂的词。"
    ),
    "html_text": (
        "这一步的文档中，标签与实体所占的比例是同一来源别处所没有的。损失可能上升；由于标签重复，也可能下降。"
    ),
    "wrong_language": "文本本身完好，但其字母属于该来源不使用的文字，或字母的前后相接在该来源别处从未出现。",
    "repeated_text": (
        "文档反复说同一句话，或这一步中有几篇完全相同。损失在这样的文本之内下降，随后的文本则受其害。"
    ),
    "tokenizer_mismatch": "把文档还原成文字再编码一次，得到的词元与训练所用的不同：它们是由另一个分词器编码的。",
    "oversampled_source": (
        "在一段步数内，某个来源占词元的比例高于以往，之后各比例复原。损失变动的幅度相当于该来源自身损失的差异。"
    ),
    "mixture_shift": "从某一步起，各来源占词元的比例改变并保持下去。总损失的水平变了，各来源自身的损失几乎不变。",
    "repeated_batch": "同一个批次（或其中一部分）在随后的步中再次出现。其损失逐步下降，换成别的文本时又跳升。",
    "hard_documents": (
        "损失与梯度在几行内突出，随后自行恢复；少数文档的损失较高，而其文字与该来源别处并无不同。没有任何问题。"
    ),
    "wrong_numbers": (
        "某个进程由相同的数据算出了与其他进程不同的结果；或某一行中，模型某一部分的梯度是平时的许多倍，而该行的损失正常。"
    ),
    "slow_compute": "某个进程的前向、反向与更新突然比以往、也比其他进程更慢；其他进程都在等它。",
    "throttled_rank": "某个进程的计算在数十步内逐渐变慢并停在那里；若平台提供，其时钟频率已下降，或报告正在降频。",
    "communication_jitter": "等待其他进程的时间忽长忽短，而各进程自身的工作时间并无变化。",
    "slow_network": "所有进程互相等待的时间都比以前长，幅度大致相同，而没有一个进程的工作变慢。",
    "loader_starvation": "每一步都从等待批次开始；以往预先备好的批次现在没有了。",
    "memory_leak": "每一段步数内内存都增长大致相同的量，并且不停止。",
    "hung_collective": "各进程在同一个集合通信中互相等待，没有一步结束；监管进程会说明是谁没有到。",
    "accumulation_normalisation": (
        "从一步到下一步，所有梯度按同一倍数改变并保持，这个倍数常常是微批次数或进程数；损失在那一步并不改变。"
    ),
    "learning_rate_jump": "所记录的学习率偏离原来的走势四分之一以上。损失在数十步内随之变化。",
    "warmup_too_short": (
        "损失在开始后不久跳升，而学习率达到最高所用的步数少于优化器的平方平均形成所需的 2/(1 - beta2) 步。"
    ),
    "clipping_off": "一个比平时大许多倍的梯度未经裁剪就进入了权重，之后损失在几行内居高不下。",
    "optimizer_state_lost": (
        "相对于学习率，更新量突然变大，而该步的梯度正常；随后在滑动平均重新形成所需的步数内逐渐变小。常见于恢复训练后的"
        "第一步。"
    ),
    "random_state_lost": (
        "从某一步起，训练得到的样本与配方和步数所定的不同：是较早各步的样本按原来的顺序，或一种无法解释的顺序。"
    ),
    "sequence_length_change": (
        "从一步到下一步，每个样本的词元变多或变少；上下文变长时损失下降，每步时间随词元数增加。"
    ),
    "attention_logit_growth": (
        "某一层 softmax 之前的最大 logit 逐行偏离其原来的增长走势，其注意力熵下降；数十至数百步之后，"
        "梯度与损失随之变化。"
    ),
    "router_collapse": "某一层中少数专家得到越来越多的词元，其他专家一个也得不到。",
    "loss_scale_collapse": "fp16 的损失缩放一再减半，更新被略去。",
    "overfitting": "留出文本上的损失上升，而训练文本上的损失下降；文本已经过了多遍。",
}
"""By cause of the catalogue: how it shows itself."""

MEASURES: tuple[tuple[str, str], ...] = (
    ("loss", "损失"),
    ("gradient norm", "梯度范数"),
    ("learning rate", "学习率"),
    ("loss scale", "损失缩放"),
    ("loss at its peak", "损失的最高值"),
    ("loss when it had recovered", "恢复后的损失"),
    ("loss of the same step", "同一步的损失"),
    ("loss, median of a window", "一个窗口内损失的中位数"),
    ("loss, had it gone on falling", "若继续下降应有的损失"),
    ("loss, when the step was computed again from the same bits", "由相同数据重算该步的损失"),
    ("smoothed loss", "平滑后的损失"),
    ("training loss meanwhile", "同期的训练损失"),
    ("held-out loss of {}", "{} 的留出集损失"),
    ("loss of {} over that of the other sources", "{} 的损失与其他来源之比"),
    ("mean loss of the step's worst documents", "该步损失最高的文档的平均损失"),
    (
        "{} of its batch over a usual one's, on the weights of step {}",
        "其批次与普通批次的{}之比（用第 {} 步的权重）",
    ),
    ("gradient norm over the steps from here on", "梯度范数与此后各步之比"),
    ("factor by which the gradients of {} changed, the least of all parts", "{} 的梯度改变的倍数（各部分中最小）"),
    ("update norm over the learning rate", "更新量范数与学习率之比"),
    ("update norm over the learning rate, {} rows on", "{} 行之后更新量范数与学习率之比"),
    ("update norm over the weights' norm", "更新量范数与权重范数之比"),
    ("updates left out", "略去的更新数"),
    ("share of {} in the tokens", "{} 占词元的比例"),
    ("tokens of a sample", "每个样本的词元数"),
    ("batch (by its digest)", "批次（按摘要）"),
    ("steps with a batch that was there before", "批次以前出现过的步数"),
    ("largest attention logit of {}, at its highest", "{} 的最大注意力 logit（最高处）"),
    ("largest attention logit of {}", "{} 的最大注意力 logit"),
    ("attention entropy of {}, over the uniform's", "{} 的注意力熵（相对均匀分布）"),
    ("load of the busiest expert of {}, over the mean", "{} 中最忙专家的负载（相对平均）"),
    ("load of the idlest expert of {}, over the mean", "{} 中最闲专家的负载（相对平均）"),
    ("how its computing became longer", "计算变慢的方式"),
    (
        "difference of a step's waiting for other ranks from the next one's, in steps",
        "相邻两步等待其他进程的时间之差（以步时计）",
    ),
    (
        "how much further apart the middle half of the waits lies, over what they are longer by",
        "等待时间的四分位距之增量与等待增加量之比",
    ),
    ("what the shortest waits are longer by, over what all are", "最短等待的增加量与等待增加量之比"),
    ("seconds of waiting of the rank that waits least", "等待最少的进程的等待秒数"),
    ("what became of it", "后来如何"),
    (
        "derivative of the loss where the gradients differ, by the wrong one",
        "损失沿梯度之差的导数（按错误的梯度）",
    ),
    ("seconds of a step", "每步秒数"),
    ("seconds until the next row", "到下一行的秒数"),
    ("seconds of data", "读取数据的秒数"),
    ("seconds of forward", "前向的秒数"),
    ("seconds of backward", "反向的秒数"),
    ("seconds of communication", "通信的秒数"),
    ("seconds of optimizer", "优化器的秒数"),
    ("seconds of telemetry", "遥测的秒数"),
    ("seconds of copies", "复制副本的秒数"),
    ("seconds of checkpoint", "保存检查点的秒数"),
    ("seconds of evaluation", "评测的秒数"),
    ("seconds since the last row", "距最后一行的秒数"),
    ("seconds of rank {}'s own work", "进程 {} 自身工作的秒数"),
    ("seconds of the same matrix products, each rank alone", "各进程单独做同样矩阵乘法的秒数"),
    ("seconds of forward, backward and optimizer of rank {}", "进程 {} 前向、反向与优化器的秒数"),
    ("seconds of forward, backward and optimizer", "前向、反向与优化器的秒数"),
    ("seconds of waiting for data of rank {}", "进程 {} 等待数据的秒数"),
    ("seconds of waiting for data", "等待数据的秒数"),
    ("seconds of a step that no phase has of rank {}", "进程 {} 一步中不属于任何阶段的秒数"),
    ("seconds of a step that no phase has", "一步中不属于任何阶段的秒数"),
    ("seconds of waiting for other ranks of rank {}", "进程 {} 等待其他进程的秒数"),
    ("seconds of waiting for other ranks", "等待其他进程的秒数"),
    ("bits of ranks that should agree", "应当一致的各进程数据"),
    ("peak memory in bytes", "内存峰值（字节）"),
    ("reserved memory in bytes", "保留显存（字节）"),
    ("host memory in bytes", "主机内存（字节）"),
    ("allocated memory in bytes", "已分配显存（字节）"),
    ("checkpoint", "检查点"),
    ("rows of the record", "记录的行"),
    ("times", "次数"),
    ("share of replacement, control and misread characters in the text", "文本中替换、控制与误读字符的比例"),
    ("share of HTML tags and entities in the text", "文本中 HTML 标签与实体的比例"),
    ("share of words that mix letters, digits and signs", "字母、数字与符号混杂的词的比例"),
    ("share of characters of scripts that the source does not use", "属于该来源不使用的文字的字符比例"),
    ("nats a letter under a model of the run's other text", "按本训练其他文本的模型，每个字母的奈特数"),
    ("share of the text that repeats itself within a passage", "段落内自我重复的文本比例"),
    ("entropy of the letters, in nats", "字母的熵（奈特）"),
    ("share of tokens that the tokenizer would not make of their text", "分词器不会由其文字得出的词元比例"),
    ("share of the step's passages that come twice in it", "该步中出现两次的段落比例"),
    ("text of its documents", "其文档的文本"),
    ("worst loss of a document", "单篇文档的最高损失"),
    ("batches that lay ready", "预先备好的批次数"),
    ("clock of rank {}'s accelerator in hertz", "进程 {} 加速器的时钟频率（赫兹）"),
    ("rank {}'s accelerator", "进程 {} 的加速器"),
    (
        "losses and gradients of two processes, from the same weights and batch",
        "两个进程由相同权重与批次算出的损失与梯度",
    ),
    ("gradient norm of the next row", "下一行的梯度范数"),
    ("gradient norm, which nothing limits", "梯度范数（没有上限）"),
    ("rows until the loss was back", "损失恢复所用的行数"),
    ("share of the excess that came after its first eight rows", "超出部分中前八行之后所占的比例"),
    ("steps from the highest learning rate to the first large loss", "从学习率最高处到首次大损失的步数"),
    ("steps of warm-up", "预热步数"),
)
"""Measures of evidence; `{}` stands for a name. One that is not here is shown as it is recorded."""

WORDS: dict[str, str] = {
    "loss": "损失",
    "gradient norm": "梯度范数",
    "the same": "相同",
    "different": "不同",
    "saved": "已保存",
    "written": "已写入",
    "throttled": "正在降频",
    "not throttled": "未降频",
    "none": "无",
    "a limit": "有上限",
    "jumped": "跳变",
    "as before": "与之前相同",
    "as in other steps": "与其他步相同",
    "just before": "就在之前",
    "few": "少数",
    "at once": "突然",
    "over tens of steps": "历经数十步",
    "stays": "持续",
    "is over": "已结束",
    "another": "另一个",
    "one that no step had before": "以前没有出现过的批次",
    "that of the samples which the recipe gives the step": "配方规定的样本的批次",
}
"""What was observed or expected, where it is words."""

OBSERVED: tuple[tuple[str, str], ...] = (
    ("more than {}", "多于 {}"),
    ("that of step {}, and on in its order", "第 {} 步的批次，并按其顺序继续"),
    ("that of step {}", "第 {} 步的批次"),
    ("of step {}, in part or whole", "第 {} 步的全部或部分样本"),
)
"""As `WORDS`, with a figure in it."""


def _patterns(table: tuple[tuple[str, str], ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple(
        (re.compile(re.escape(english).replace(r"\{\}", "(.+?)"), re.DOTALL), chinese) for english, chinese in table
    )


_PATTERNS, _SAID = _patterns(MEASURES), _patterns(OBSERVED)


def remedy_in_chinese(remedy: Remedy) -> str:
    """The remedy as a sentence. Raises `KeyError` for an action or an argument that is not known."""
    return REMEDIES[remedy.action].format_map({name: _spelled(value) for name, value in remedy.arguments.items()})


def _spelled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "、".join(map(str, value))
    return PHRASES.get(value, value) if isinstance(value, str) else value


def in_chinese(said: str) -> str | None:
    """A measure of evidence, or what was observed in words; None where this table has no words for it."""
    if said in WORDS:
        return WORDS[said]
    for pattern, chinese in (*_PATTERNS, *_SAID):
        found = pattern.fullmatch(said)
        if found is not None:
            return chinese.format(*(WORDS.get(name, name) for name in found.groups()))
    return None
