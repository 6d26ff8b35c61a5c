"""Colours (Okabe-Ito) and markers of schedulers in the claims' figures."""

COLOURS = {
    "vllm": "#0072B2",
    "vllm_pf": "#56B4E9",
    "vllm_hy": "#CC79A7",
    "sarathi": "#D55E00",
    "sarathi_pf": "#E69F00",
    "sarathi_cs": "#009E73",
    "sarathi_cs_pf": "#F0E442",
    "vllm-v0": "#0072B2",
    "vllm-v0_pf": "#56B4E9",
}
MARKERS = {
    "vllm": "o",
    "vllm_pf": "s",
    "vllm_hy": "P",
    "sarathi": "^",
    "sarathi_pf": "v",
    "sarathi_cs": "D",
    "sarathi_cs_pf": "X",
    "vllm-v0": "o",
    "vllm-v0_pf": "s",
}
