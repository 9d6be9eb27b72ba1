//! The reference page of a run's folder, generated from the declarations of its columns.

use std::fmt::Write as _;

use super::cell::{ColumnKind, Row};
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, Transfer,
};

/// Returns the reference of the files in a run's folder, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    table::<PacketRow>(
        &mut page,
        "one row per packet and pipe, in the order of arrival",
    );
    table::<Header>(
        &mut page,
        "one row per TCP segment and ICMP echo message that a simulated host sent, in that order",
    );
    table::<FlowSample>(
        &mut page,
        "one row per flow and instant; a cell is empty if the flow's type or the backend does not \
         measure the value, and counts start at the start of the flow",
    );
    table::<QueueSample>(
        &mut page,
        "one row per variable of a pipe or a queue and instant: `backlog_packets` and \
         `backlog_bytes` of the whole pipe, and the variables of the algorithm, per queue",
    );
    table::<PingSample>(
        &mut page,
        "one row per probe, per packet of a call, or per request",
    );
    table::<Transfer>(
        &mut page,
        "one row per complete transfer or page, and per page that was open at the end",
    );
    table::<Release>(
        &mut page,
        "one row per packet that a live router sent, with its lateness",
    );
    table::<Arrival>(
        &mut page,
        "one row per packet that a live router queued: the input of `sluice replay RUN`",
    );
    page
}

fn table<R: Row>(page: &mut String, rows: &str) {
    let _ = write!(
        page,
        "\n## `{}.parquet`: {rows}\n\n| column | holds | meaning |\n|---|---|---|\n",
        R::TABLE
    );
    for column in R::columns() {
        let kind = match column.kind {
            ColumnKind::Int => "int64",
            ColumnKind::Float => "double",
            ColumnKind::Text => "string",
            ColumnKind::Flag => "boolean",
        };
        let or_empty = if column.is_optional { ", or empty" } else { "" };
        let _ = writeln!(
            page,
            "| `{}` | {kind}{or_empty} | {} |",
            column.name, column.doc
        );
    }
}

const INTRODUCTION: &str = "\
# The folder of a run

`sluice run` writes a folder per variant:

| file | content |
|---|---|
| `run.json` | the scenario with all values (as JSON, and as TOML for another run), seed, versions, host, kernel, the flows with their numbers, the programs with their exit status and figures, SHA-256 of the tables and of the algorithms' files (`algorithms`, relative to `folder_of_algorithms`), the build ID of the program, and the status of the run: `running`, `complete`, or `partial` with the reason |
| `packets.parquet`, `headers.parquet`, `flows.parquet`, `queues.parquet`, `pings.parquet`, `transfers.parquet`, `releases.parquet`, `arrivals.parquet` | the tables below |
| `summary.json` | the figures of the run, and a seal: a SHA-256 of the figures, the scenario and the tables. If it does not fit, because the figures were edited or are of another run, they are computed again from the tables, or refused if there are none. In Python, `sluice.Recording` reads the file as it is |
| `report.html` | the charts of the run |
| `programs/NAME.out`, `programs/NAME.err` | what the program of the flow `NAME` wrote to its standard output and standard error, if it wrote anything; at most 16 MiB each |

A file has its name only when it is complete; until then its name ends in `.part`. An interrupted
run keeps the files that it has written. If a run was killed (`kill -9`), the next command that
reads its folder writes this into `run.json`.

`sluice run --record LEVEL` sets how much is recorded:

| level | files |
|---|---|
| `figures` | `run.json` and `summary.json`; default for a scenario with more than 50 runs |
| `flows` | also `flows`, `queues`, `pings`, `transfers`, and the report without packets |
| `packets` | everything; default for all other scenarios |

The figures are the same at every level, because they are computed during the run. A command that
needs a table that was not recorded names the table and the level that has it; a picture that has no
values for this reason names the level. `run.json` has the level as `recorded`, unless it is
`packets`.

All times are in nanoseconds from the start of the run. `flow` is the number of the flow in
`run.json`; packets of no flow have 4294967295. Of a recorded program, the packets of both
directions of a connection have one number: a second flow of the connection has no packets of its
own, and names the first one as `packets_of`. The tables are Parquet (Snappy), which every reader
supports:

```python
import pyarrow.parquet as pq
packets = pq.read_table(\"runs/first-light/codel/packets.parquet\").to_pandas()
packets[packets.verdict == \"dropped\"].groupby(\"reason\").size()
```

Percentiles in `summary.json` and the warm-up are explained in [Figures](metrics.md).
";
