"""The walk-through in Chinese."""

from app.lesson_words import StepWords, Words

STEPS = (
    StepWords(
        "分数矩阵",
        "注意力让每个 query 与每个 key 各配一次，因此一个 head 会产生 S × S 个分数，而调用者一个也看不到："
        "返回的只有 O，大小是 S × head_dim。S = 8,192、head_dim = 128 时，背后有 {article_scores} 个分数，"
        "O 却只有它的 1/{article_ratio_plain}。序列加倍，O 加倍，分数则变成四倍。",
        "按 tile 查看分数矩阵",
    ),
    StepWords(
        "来回搬运",
        "如果一步一个 kernel，分数就要寄存在 HBM：前一个写出 S，后一个取回、改写、再放回去，一直到 P 乘 V。"
        "在这里，S 或 P 被完整读写 {trips} 次，没有一次属于计算。FlashAttention 照样算出每一个分数，"
        "它省掉的是存放。",
        "逐个 launch 看字节去向",
    ),
    StepWords(
        "一次一行",
        "一个 query 只用得到自己那一行分数。用它对所有 key 打分、归一化、混合 value、写出 O 的一行，"
        "然后忘掉分数：一个 program 手里的分数不超过 {row_scores} 个。代价出在另一边：每个 query 都要重新请求它的 "
        "K 和 V，每个 head 要 {row_times} 遍。",
        "按张量看请求的字节",
    ),
    StepWords(
        "Query 分块",
        "Query 之间互不等待，所以 BLOCK_M = {BLOCK_M} 个 query 可以共用一遍 K 和 V。对 K、V 的请求降到每个 head "
        "{tile_times} 遍，许多零散的矩阵向量乘合成一个矩阵乘，正是 tensor core 适合的形状。"
        "块里的每一行都是完整的，softmax 一次就能定下来。",
        "一个 Q tile 接一个 Q tile",
    ),
    StepWords(
        "Key 分块",
        "把 key 也切开并不会少读一个字节：无论一整块还是四小块，每个 Q tile 都把 K 和 V 读一遍。"
        "S = 16 时，4 × 4 与 4 × 16 请求的同样是 {small_kv}，4 × 4 还多出 {small_extra} 个可能需要重新缩放的步骤。"
        "矩阵这么小，4 × 16 才是更好的调度；4 × 4 只是画起来方便。",
        "逐步走过各个 KV tile",
    ),
    StepWords(
        "片上放得下多少",
        "切 key 是因为行会变长：64 个 query 对 8,192 个 key，float32 分数就有 {row_block}，而一个 SM 的寄存器只有 "
        "{registers}：从 S = {fill_keys} 起，光是这些分数就占满了。共享内存也救不了：A100 每个 SM 有 {a100_sm}，"
        "单个 block 最多用 {a100_block}。（文章写的 228 KB 是 H100 的数字。）64 × 64 的 tile 不论 S 多大都只占 "
        "{tile_scores}。",
        "每一步片上有什么",
    ),
    StepWords(
        "出错的 softmax",
        "Softmax 的分母是整行之和，而一块 key 只知道自己那一段。各块分别归一化再接起来，每一段的和都是 1，"
        "于是整行之和等于块数，这里是 {glued_sum}。如果按 BLOCK_N = {BLOCK_N} 切，{row_scores} 个分数的一行"
        "会加出 {kv_tiles}。",
        "逐个 tile 看 m、l 和 acc",
    ),
    StepWords(
        "m 和 l",
        "每行留两个数就能修好：m 是迄今最大的分数，l 是 exp(s − m) 的和。新块若带来更大的最大值，"
        "l 乘以 α = exp(m_old − m_new)，就等于一开始便知道这个最大值时的 l，以前的分数不必再看。"
        "最后一块之后，它们就是整行的 m 和 l。它们只给出分母：要得到某个概率，仍然需要那个位置的分数。",
        "运行中的 kernel 写出的 m 和 l",
    ),
    StepWords(
        "acc",
        "O 是 V 各行的加权和，所以分子也能一块一块地累加：acc 乘以同一个 α，再加上这一块的 exp(s − m) · V。"
        "此刻分数和 V 都在片上，这一步不产生 HBM 流量，这一块的分数随后就可以丢掉。"
        "最后一块之后，O = acc / l。",
        "每个 KV tile 之后的 acc",
    ),
    StepWords(
        "Algorithm 与 Schedule",
        "Halide 把算什么和怎么算分开写：schedule 负责切分、移动、融合循环并安排存放，结果按定义不变。"
        "这个 kernel 里有五个这样的动作，行号列在图中。可是对教科书上的 softmax，任何 schedule 都做不到，"
        "因为它要先看完整行；online softmax 换了一个值相等的算法，调度才有了起点。",
        "逐步查看 schedule",
    ),
    StepWords(
        "省下了什么",
        "计算量一点没省：有效的分数都要 {flops}，O 在舍入误差内相同。省掉的是 S 和 P 的搬运，以及存放它们的内存。"
        "{saved}",
        "四种字节一起看",
    ),
)
NOTES = {
    "numbers": "除非注明，均为一个 head；由公式得出。文章取 S = 8,192，head_dim = 128，32 个 head。",
    "trips_counted": "naive 每个 launch 的 HBM 字节，在 {device} 上由计数器测得。蓝：读，橙：写。",
    "trips_in_l2": "{label} 的 S 为 {scores}，L2 为 {l2}：其中大部分不离开 L2。",
    "trips_schedule": "naive 的 schedule 对 {label} 请求的字节。蓝：读，橙：写。"
    "在 GPU 上运行 naive 即可测得 HBM 字节。",
    "requested": "{label}。斜线：请求的字节，来自 schedule。",
    "crossed": "实心：L2↔SM，由计数器测得。",
    "run_these": "运行 {kernels} 即可实测。",
    "cannot_run": "{kernel} 在 {device} 上无法实测：{reason}",
    "small": "S = 16，head_dim = 16，float32；来自 flash 的 schedule。数字是 tile 在所属 program 中的次序。",
    "chip": "一个 SM 的寄存器和共享内存，据 NVIDIA 的规格书和 Hopper tuning guide，其中 KB 即 KiB。分数为 float32；"
    "kernel 可以把它们分放在寄存器和共享内存里，但总量不能超过两者之和。",
    "breaks": "分数 0, 0, ln 2, ln 2，分成两块；在此处计算。",
    "state": "同一行；在此处计算。第一块的 α 没有可缩放的东西。",
    "acc": "点：运行中的 kernel 在 {device} 上写出的第 {row} 行的 |acc|。线：float64 精确值。"
    "最大相差 {apart}（相对）。",
    "no_trace": "所示的 Run 都没有记录 softmax 状态。",
    "source": "读自本机安装的 kernels 源码。",
    "recorded": "这是随附的记录，不是在本机测得：{label}。",
    "live_here": "在 {device} 上测得。",
    "live_recorded": "记录于 {device}，{date}，问题为 {label}。",
    "s_and_p": "仅 S 和 P，{dtype}：{bytes}。",
    "moved": "占 BLOCK_N = {BLOCK_N} 时所有记录步骤的 {percent}%；其余各步 α 为 1。",
    "moved_row": "第 {row} 行，{tiles} 个 KV tile。",
    "glued_run": "第 {row} 行的 {scores} 个分数来自运行中的 kernel，在此处按 BLOCK_N = {BLOCK_N} 分块归一化后拼接。",
    "no_scores": "所示的 Run 都没有保存某一行的分数。",
    "saved_here": "在 {device} 上，naive 经过 HBM {naive}，flash {flash}：{ratio}。",
    "saved_recorded": "据 {device} 上 {label} 的记录，naive 经过 HBM {naive}，flash {flash}：{ratio}。",
    "saved_unknown": "省了多少，这里没有 Run 能回答。",
    "saved": "{label}。最后一列：naive / flash。",
}
LABELS = {
    "quantity": "",
    "shown": "所示",
    "article": "文章",
    "scores": "分数个数",
    "s_fp32": "S，float32",
    "s_16": "S，16 位",
    "heads": "batch × heads",
    "s_all": "S，float32，所有 head",
    "o_fp32": "O，float32",
    "s_over_o": "S / O",
    "hbm_axis": "HBM 字节",
    "requested_axis": "请求的字节",
    "bytes_axis": "字节，对数轴",
    "requested": "请求",
    "compulsory": "必需",
    "kv_bytes": "K 和 V {bytes}",
    "tile_steps": "{steps} 步，{rescales} 步可能要缩放",
    "keys": "key",
    "queries": "query",
    "row_block": "分数 {rows} × {keys}",
    "registers": "寄存器",
    "shared": "共享内存，{gpu}",
    "chip_axis": "KiB",
    "whole_row": "整行",
    "glued": "分块后拼接",
    "sum": "和",
    "block": "块",
    "block_scores": "分数",
    "probabilities": "exp(s − m) / l",
    "kv_tile": "KV tile",
    "halide": "Halide",
    "here": "在 kernel 里",
    "where": "位置",
    "code": "代码",
    "tiling": "分块：split, tile",
    "tiling_here": "每个 program BLOCK_M 个 query，每步 BLOCK_N 个 key",
    "order": "reorder",
    "order_here": "query 在外层，key 在内层",
    "compute_at": "compute_at",
    "compute_at_here": "分数在用到它的循环里才算",
    "fusion": "生产者与消费者融合",
    "fusion_here": "权重立刻乘 V，P 从不落地",
    "locality": "存放：store_in",
    "locality_here": "acc 全程留在寄存器",
    "algebra": "无：属于 algorithm",
    "algebra_here": "online softmax：α 缩放 l 和 acc",
    "hbm": "HBM 字节",
    "hbm_shown": "HBM 字节，所示的 Run",
    "l2_sm": "L2↔SM 字节",
    "time": "GPU 时间",
    "peak": "峰值内存",
    "spills": "读取的 spill",
    "launched": "启动的 kernel 数",
    "moved": "使最大值变动的步骤",
    "glued_run": "一行拼接后的和",
    "of_kernel": "{kernel}：{what}",
    "of": "{part} / {whole}",
    "missing_line": "在 kernels 源码中没有找到这一行。",
    "missing_kernel": "本机没有能算这个问题的 {kernel} kernel。",
    "missing_run": "所示的 Run 中没有这个问题的 {kernel}。",
}
CHINESE = Words(
    "中文",
    "zh",
    "注意力为什么不需要分数矩阵：十一步，每步一个数字。",
    "{about}。数字都在这里计算或测得，否则注明记录于何处。",
    STEPS,
    NOTES,
    LABELS,
    space="",
    lead="原因（英文）：",
)
