"""Trace readers: each format by its columns, exact arrivals, and one clear line for whatever is wrong."""

import gzip
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.generate import parse_arrivals
from sim.instance import Instance, Request
from sim.traces import read_trace
from sim.workload import TraceOptions, instance_from_trace, shape_instance

# (arrival_ns, I, O) each of these files holds; headers as published with each data set.
EXPECTED = [(0, 374, 44), (4_314_489_000, 396, 109)]
FILES = {
    "azure-2023.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                      "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9950790,396,109",
    "azure-2024.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                      "2024-05-12 00:00:00.001163+00:00,374,44\n2024-05-12 02:00:04.315652+02:00,396,109\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                    "0,ChatGPT,374,44,418,Conversation log\n4.314489,GPT-4,396,109,505,API log\n",
    "burstgpt-v2.csv": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                       "0.0,,1.2,ChatGPT,374,44,418,Conversation log\n4.314489,,2,GPT-4,396,109,505,API log\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0, 1]}\n'
                      '{"timestamp": 4314.489, "input_length": 396, "output_length": 109, "hash_ids": []}\n',
    "servegen.csv": "arrival_s,input_tokens,output_tokens\n0.0,374,44\n4.314489,396,109\n",
    "vidur.csv": ",arrived_at,num_prefill_tokens,num_decode_tokens,pd\n0,0.0,374,44,8\n1,4.314489,396,109,3\n",
    "splitwise.csv": "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
                     "0,2,0,0.0,1,374,44\n1,2,0,4.314489,1,396,109\n",
    "bom.csv": "\ufeffarrival_s, input_tokens, output_tokens\r\n0.0,374,44\r\n\r\n4.314489,396.0,109\r\n",
}  # fmt: skip
LENGTHS = {
    "pairs.json": "[[374, 44],\n [396, 109]]",
    "objects.json": '[{"prompt_len": 374, "output_len": 44}, {"prompt_len": 396, "output_len": 109}]',
    "lines.jsonl": '{"input_tokens": 374, "output_tokens": 44}\n\n{"input_tokens": 396, "output_tokens": 109}\n',
    "lengths.csv": "num_prefill_tokens,num_decode_tokens\n374,44\n396,109\n",
    "sharegpt.csv": "prompt_len,output_len\n374,44\n396,109\n",
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_told_by_its_columns(name: str, tmp_path: Path) -> None:
    found = [(r.arrival_ns, r.input_tokens, r.output_tokens) for r in read_trace(write(tmp_path, name, FILES[name]))]
    assert found == EXPECTED


@pytest.mark.parametrize("name", LENGTHS)
def test_lists_of_lengths_arrive_at_once(name: str, tmp_path: Path) -> None:
    found = [(r.arrival_ns, r.input_tokens, r.output_tokens) for r in read_trace(write(tmp_path, name, LENGTHS[name]))]
    assert found == [(0, i, o) for _, i, o in EXPECTED]


def test_compressed_files_and_priorities(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"arrival_s,input_tokens,output_tokens,priority\n1,2,3,4\n"))
    assert list(read_trace(path)) == [Request(2, 3, 10**9, 4)]


HEAD = "arrival_s,input_tokens,output_tokens\n"
BROKEN = {
    "": "is empty",
    HEAD: "has no requests",
    "a,b\n1,2\n": "columns = 'a,b': fit no known trace format; tried: azure (TIMESTAMP,ContextTokens,GeneratedTokens)",
    "TIMESTAMP,ContextTokens\n1,2\n": "azure would need GeneratedTokens",
    '{"timestamp": 0, "input_length": 5}\n': "mooncake would need output_length",
    HEAD + "0,1\n": "line 2: has 2 columns, the header 3",
    HEAD + "0,1,2\n0,x,2\n": "line 3.input_tokens = 'x': must be an integer >= 1",
    HEAD + "0,1.5,2\n": "line 2.input_tokens = '1.5': must be an integer >= 1",
    HEAD + "0,-1,2\n": "line 2.input_tokens = '-1': must be an integer >= 1",
    HEAD + "0,1,0\n": "line 2.output_tokens = 0: must be an integer >= 1; --drop-empty leaves such rows out",
    HEAD + "0,1,99999999999\n": "line 2.output_tokens = '99999999999': must be an integer >= 1",
    HEAD + "soon,1,2\n": "line 2.arrival_s = 'soon': must be a number of seconds >= 0",
    HEAD + "-1,1,2\n": "line 2.arrival_s = '-1': must be a number of seconds >= 0",
    HEAD + "nan,1,2\n": "line 2.arrival_s = 'nan': must be a number of seconds >= 0",
    HEAD + "1e30,1,2\n": "line 2.arrival_s = '1e30': must be a number of seconds >= 0",
    "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n": "TIMESTAMP = 'yesterday': must be a time like",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,2\n": "must be a time like",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-03 00:00:01,1,2\n2023-02-03 00:00:00,1,2\n":
        "line 3.TIMESTAMP = '2023-02-03 00:00:00': earlier than the first row",
    '{"timestamp": 0,\n': "line 1: is not JSON",
    '{"timestamp": 0, "input_length": 5, "output_length": 2}\n[]\n': "line 2 = []: must be a JSON object",
    '{"timestamp": 0, "input_length": 5, "output_length": 2}\n{"timestamp": 0}\n': "line 2.input_length: missing",
    '{"timestamp": true, "input_length": 5, "output_length": 2}\n': "must be a number of milliseconds >= 0",
    '{"timestamp": 0, "input_length": null, "output_length": 2}\n': "must be an integer >= 1",
    "[[1, 2], [3]]": "line 2 = [3]: must be a pair [input tokens, output tokens]",
    "[]": "has no requests",
}  # fmt: skip


@pytest.mark.parametrize("text", BROKEN)
def test_whatever_is_wrong_is_one_line(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, "broken.trace", text)
    with pytest.raises(InputError) as caught:
        list(read_trace(path))
    message = str(caught.value)
    assert message.startswith(str(path)) and BROKEN[text] in message and "\n" not in message


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.csv.gz").write_bytes(b"not gzip")
    for name in ("a.csv", "b.csv.gz", "missing.csv", "."):
        with pytest.raises(InputError):
            list(read_trace(tmp_path / name))


def test_empty_rows_are_left_out_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", HEAD + "0,1,0\n1,2,3\n2,0,4\n")
    assert list(read_trace(path, drop_empty=True)) == [Request(2, 3, 10**9)]


def test_reading_stops_at_the_first_n(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", HEAD + "0,1,2\n1,3,4\nbroken\n")
    instance = instance_from_trace(path, TraceOptions(100, first=2))
    assert [r.input_tokens for r in instance.requests] == [1, 3]
    with pytest.raises(InputError, match="line 4"):
        instance_from_trace(path, TraceOptions(100))


ROWS = Instance(tuple(Request(10 * k, k, k * 10**9) for k in range(1, 6)), 1000, 64)


def test_shaping() -> None:
    cut = shape_instance(ROWS, TraceOptions(window_s=(2, 5), first=2, rate_scale=2))
    assert [(r.input_tokens, r.arrival_ns) for r in cut.requests] == [(20, 0), (30, 5 * 10**8)]
    scaled = shape_instance(ROWS, TraceOptions(output_scale=2.5, max_tokens=32, kv_scale=0.5, token_budget=8))
    assert [(r.input_tokens, r.output_tokens) for r in scaled.requests] == [
        (10, 2),
        (20, 5),
        (24, 8),
        (22, 10),
        (20, 12),
    ]
    assert (scaled.kv_capacity_tokens, scaled.token_budget) == (500, 8)
    assert shape_instance(ROWS, TraceOptions(offline=True)).offline
    with pytest.raises(InputError, match="request 4 generates 5 tokens"):
        shape_instance(ROWS, TraceOptions(max_tokens=5))
    with pytest.raises(InputError, match="no requests in this window"):
        shape_instance(ROWS, TraceOptions(window_s=(6, 7)))


def test_drawn_arrivals_replace_those_of_the_workload() -> None:
    options = TraceOptions(arrivals=parse_arrivals("poisson:100", ""), seed=3)
    once, again = (shape_instance(ROWS, options) for _ in range(2))
    assert once == again and once != shape_instance(ROWS, TraceOptions(arrivals=options.arrivals, seed=4))
    times = [r.arrival_ns for r in once.requests]
    assert times == sorted(times) and times[0] > 0
