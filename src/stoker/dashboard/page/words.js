/* The page's words in two languages; findings and figures have names of their own in names.js. */

export const NOTHING = "–";

const ENGLISH = {
  runs: "Runs", add: "Add a run…", remove: "Take out", filter: "Filter by name, folder or state", overlay: "Lay over each other",
  name: "Name", state: "State", step: "Step", loss: "Loss", rate: "Tokens/s", findings: "Findings", folder: "Folder", updated: "Last row",
  running: "running", finished: "finished", terminated: "stopped when asked to", non_finite: "stopped: not finite", interrupted: "interrupted", not_started: "not started", removed: "folder removed",
  tokens: "Tokens", hours: "Time", flops: "FLOPs", axis: "Horizontal axis", smoothing: "Smoothing", log: "log y", logX: "log x", clip: "Clip outliers", reset: "Show all",
  dark: "Dark", light: "Light", language: "中文", help: "Keys", close: "Close", copy: "Copy", copied: "Copied", left: "Time left", ranks: "Ranks", tokensSeen: "Tokens seen", stepTime: "Step time", parameters: (n) => `${n} parameters`,
  overview: "Overview", quality: "Loss", optimisation: "Optimisation", modules: "Modules", speed: "Speed", machine: "Machine", data: "Data", events: "Events", difference: "Difference", rankMap: "Ranks × steps", moduleMap: "Modules × steps",
  lost: "No connection to the server; trying again", connected: "Live", over: "The run has ended", ago: (text) => `${text} ago`, now: "a moment", microseconds: "µs", milliseconds: "ms", seconds: "s", minutes: "min", hoursLong: "h", days: "d", and: ", ", colon: ": ", line: (n) => `line ${n}`,
  noRuns: "No run matches.", waiting: "The run is being diagnosed…", moreFindings: (n) => `Show ${n} more`, severalFindings: (n, text) => `${n} findings here, among them ${text}`, noRecord: "no record", nothingFound: "Nothing stands out.", diagnosisFailed: (why) => `The diagnosis failed: ${why}`,
  steps: (a, b) => (a === b ? `step ${a}` : `steps ${a} to ${b}`), atStep: (a) => `step ${a}`, rank: (n) => `rank ${n}`, evidence: "Evidence", alternatives: "Other causes weighed", against: "Against it", for: "For it", remedy: "What to do", cause: "Cause", unknown: "unknown",
  observed: (measure, observed, expected, step) => `${measure}: ${observed}${expected ? ` where ${expected} was expected` : ""}${step ? `, at step ${step}` : ""}`,
  lasting: "lasting", alarm: "alarm", warning: "warning", note: "note", documents: "Documents of this step", worst: "Worst documents, as recorded", text: "Text", samples: (a, b) => (a === b ? `sample ${a}` : `samples ${a} to ${b}`), sample: (n) => `sample ${n}`, lossOf: (x) => `loss ${x}`, tokensOf: (a, b, n) => `tokens ${a} to ${b} of ${n}`, tokensFrom: (a, b) => `tokens ${a} to ${b} of the sample`, epoch: (n) => `pass ${n}`,
  noDocuments: "No loss of single documents was recorded of this step (telemetry.worst_documents).", noText: (why) => `The text cannot be shown: ${why}`, moreDocuments: (n) => `${n} more are not shown`, reading: "Reading…", otherText: "The step was given other text than the recipe gives it, which is shown here: see the finding, or the worst documents as recorded.", figure: "Figure", here: "Here", usual: (n) => `Median of ${n} rows before`, inside: "Inside this step", timeline: "This step on every rank", timelineRecorded: "As recorded.", timelinePhases: "Phases one after the other: no timeline was recorded of this step (telemetry.timeline_every).", missingRanks: (text) => `No row of rank ${text}.`, clockUncertain: "Clocks of the ranks were compared; without a comparison they are taken as they are.",
  previous: "Step before", next: "Step after", command: "Command", whatHappened: "What happened", noEvents: "Nothing was recorded.", leftOut: (n) => `${n} routine events are not listed`,
  laneFindings: "findings", laneFailures: "failures", laneSaved: "checkpoints", laneEvaluated: "evaluations", laneStages: "stages",
  largestOf: "each cell: the largest of its steps", clickCell: "click a cell for the step's timeline", clickModule: "click a cell for the step", measure: "Measure", whichRun: "Run", funnel: "From documents read to documents kept", source: "Source", stage: "Stage", count: "Documents", kept: "kept",
  empty_quality: "No loss has been recorded yet.", none: (what, why) => `This run has no ${what}, because ${why}.`, why_old: "its record was written by an older version or with this part of telemetry switched off", why_dense: "its model has no mixture of experts", why_single: "it has one rank", why_evaluation: "it has not been evaluated yet (evaluation.every)", why_every: "telemetry.modules_every has not come round yet, or is 0", why_platform: "its platform does not tell, or telemetry.machine_seconds is 0", why_corpus: "its folder holds no corpus.json",
  firstDiffers: "First step that differs", never: "never", differing: (n) => `${n} steps`, recipeSame: "The recipes are the same.", recipeDiffers: "Recipe", chooseTwo: "Two runs laid over each other are compared here.", sharedSteps: (n) => `${n} steps in both`, compareMissing: (why) => `The recipes cannot be compared: ${why}`,
  gap_ranks: (g) => `No record of ${g.count === 1 ? "rank" : g.count + " ranks:"} ${g.ranks.join(", ")}${g.count > g.ranks.length ? ", …" : ""}`, gap_tail: (g) => `${g.bytes} bytes of an unfinished last row are left out`, gap_damaged: (g) => `Damaged and left out: ${g.files.join(", ")}`, gap_steps: (g) => `No row of steps ${g.spans.map((s) => s.join("–")).join(", ")}${g.count > g.spans.length ? ", …" : ""}`, redone: (n) => `${n} rows were done again after going back; the last time counts`,
  outliers: "▲ beyond the chart", notFinite: "NaN", keys: [["drag", "zoom"], ["shift + drag, ← →", "pan"], ["+ −, ctrl + wheel", "zoom in, out"], ["double click, 0", "show all"], ["click, Enter", "the step"], ["/", "filter runs"], ["Esc", "close"]],
  live: "follows the newest step", skip: "Skip to the charts", share: "share", noAxis: "This run does not record it",
};

const CHINESE = {
  runs: "训练列表", add: "添加一个训练…", remove: "移除", filter: "按名称、目录或状态筛选", overlay: "叠加对比",
  name: "名称", state: "状态", step: "步", loss: "损失", rate: "词元/秒", findings: "发现", folder: "目录", updated: "最近记录",
  running: "运行中", finished: "已完成", terminated: "应要求停止", non_finite: "已停止：数值非有限", interrupted: "中断", not_started: "未开始", removed: "目录已删除",
  tokens: "词元", hours: "时间", flops: "FLOPs", axis: "横轴", smoothing: "平滑", log: "纵轴对数", logX: "横轴对数", clip: "截去离群值", reset: "显示全部",
  dark: "深色", light: "浅色", language: "English", help: "按键", close: "关闭", copy: "复制", copied: "已复制", left: "剩余时间", ranks: "进程数", tokensSeen: "已训练词元", stepTime: "每步时间", parameters: (n) => `${n} 参数`,
  overview: "总览", quality: "损失", optimisation: "优化", modules: "模块", speed: "速度", machine: "机器", data: "数据", events: "事件", difference: "差异", rankMap: "各进程 × 步", moduleMap: "各模块 × 步",
  lost: "与服务器的连接中断，正在重试", connected: "实时", over: "训练已结束", ago: (text) => `${text}前`, now: "片刻", microseconds: "微秒", milliseconds: "毫秒", seconds: "秒", minutes: "分钟", hoursLong: "小时", days: "天", and: "、", colon: "：", line: (n) => `第 ${n} 行`,
  noRuns: "没有符合条件的训练。", waiting: "正在诊断…", moreFindings: (n) => `再显示 ${n} 项`, severalFindings: (n, text) => `此处有 ${n} 项发现，其中：${text}`, noRecord: "没有记录", nothingFound: "没有异常。", diagnosisFailed: (why) => `诊断失败：${why}`,
  steps: (a, b) => (a === b ? `第 ${a} 步` : `第 ${a} 至 ${b} 步`), atStep: (a) => `第 ${a} 步`, rank: (n) => `进程 ${n}`, evidence: "证据", alternatives: "其他可能的原因", against: "反面证据", for: "正面证据", remedy: "处理办法", cause: "原因", unknown: "未知",
  observed: (measure, observed, expected, step) => `${measure}：${observed}${expected ? `，预期 ${expected}` : ""}${step ? `（第 ${step} 步）` : ""}`,
  lasting: "持续中", alarm: "警报", warning: "警告", note: "提示", documents: "这一步的文档", worst: "所记录的损失最高的文档", text: "正文", samples: (a, b) => (a === b ? `样本 ${a}` : `样本 ${a} 至 ${b}`), sample: (n) => `样本 ${n}`, lossOf: (x) => `损失 ${x}`, tokensOf: (a, b, n) => `第 ${a} 至 ${b} 个词元，共 ${n}`, tokensFrom: (a, b) => `样本的第 ${a} 至 ${b} 个词元`, epoch: (n) => `第 ${n} 遍`,
  noDocuments: "这一步没有记录单篇文档的损失（telemetry.worst_documents）。", noText: (why) => `无法显示正文：${why}`, moreDocuments: (n) => `另有 ${n} 篇未显示`, reading: "读取中…", otherText: "这一步实际得到的文本与配方规定的不同；此处显示的是配方规定的文本。请看诊断的发现，或上面所记录的损失最高的文档。", figure: "数值", here: "此处", usual: (n) => `之前 ${n} 行的中位数`, inside: "这一步之内", timeline: "各进程在这一步的时间线", timelineRecorded: "按记录绘制。", timelinePhases: "按阶段依次排列：这一步没有记录时间线（telemetry.timeline_every）。", missingRanks: (text) => `缺少进程 ${text} 的记录。`, clockUncertain: "各进程时钟经过比对；未经比对的按原样使用。",
  previous: "上一步", next: "下一步", command: "命令", whatHappened: "经过", noEvents: "没有记录。", leftOut: (n) => `另有 ${n} 个例行事件未列出`,
  laneFindings: "发现", laneFailures: "故障", laneSaved: "检查点", laneEvaluated: "评测", laneStages: "阶段",
  largestOf: "每格为其中各步的最大值", clickCell: "点击一格查看该步的时间线", clickModule: "点击一格查看该步", measure: "指标", whichRun: "训练", funnel: "从读入的文档到保留的文档", source: "来源", stage: "环节", count: "文档数", kept: "保留",
  empty_quality: "还没有记录损失。", none: (what, why) => `这个训练没有${what}：${why}。`, why_old: "其记录由旧版本写成，或关闭了这部分遥测", why_dense: "模型不含专家混合", why_single: "只有一个进程", why_evaluation: "尚未评测（evaluation.every）", why_every: "尚未到 telemetry.modules_every 规定的步，或其值为 0", why_platform: "平台不提供，或 telemetry.machine_seconds 为 0", why_corpus: "目录中没有 corpus.json",
  firstDiffers: "最早出现差异的步", never: "无差异", differing: (n) => `${n} 步`, recipeSame: "两份配方相同。", recipeDiffers: "配方", chooseTwo: "叠加两个训练后，在此比较。", sharedSteps: (n) => `共有 ${n} 步`, compareMissing: (why) => `无法比较配方：${why}`,
  gap_ranks: (g) => `缺少进程 ${g.ranks.join("、")}${g.count > g.ranks.length ? "等 " + g.count + " 个进程" : ""}的记录`, gap_tail: (g) => `略去末尾未写完的一行（${g.bytes} 字节）`, gap_damaged: (g) => `已损坏并略去：${g.files.join("、")}`, gap_steps: (g) => `第 ${g.spans.map((s) => s.join("–")).join("、")} 步没有记录`, redone: (n) => `回退后有 ${n} 行重新训练，以最后一次为准`,
  outliers: "▲ 超出图幅", notFinite: "NaN", keys: [["拖动", "放大"], ["Shift + 拖动，← →", "平移"], ["+ −，Ctrl + 滚轮", "缩放"], ["双击，0", "显示全部"], ["单击，Enter", "查看该步"], ["/", "筛选"], ["Esc", "关闭"]],
  live: "跟随最新的步", skip: "跳到图表", share: "占比", noAxis: "这个训练没有记录该项",
};

const TABLES = { en: ENGLISH, zh: CHINESE };
let language = "en";
try {
  const kept = localStorage.getItem("stoker-language");
  language = kept in TABLES ? kept : navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
} catch { /* a browser that keeps nothing */ }
document.documentElement.lang = language === "zh" ? "zh-CN" : "en";

export const isChinese = () => language === "zh";
export const locale = () => (language === "zh" ? "zh-CN" : "en-GB");

export function switchLanguage() {
  language = language === "zh" ? "en" : "zh";
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  try { localStorage.setItem("stoker-language", language); } catch { /* not kept then */ }
}

/* Several things in a row, and a thing with what is said of it, as the language puts them. */
export const listed = (parts) => parts.join(words("and"));
export const saying = (what, said) => what + words("colon") + said;

export function words(key, ...given) {
  const entry = TABLES[language][key] ?? ENGLISH[key] ?? key;
  return typeof entry === "function" ? entry(...given) : entry;
}
