//! The reference page of a run's folder, made from the declarations of its columns.

use std::fmt::Write as _;

use super::cell::{ColumnKind, Row};
use super::rows::{Arrival, FlowSample, PacketRow, PingSample, QueueSample, Release, Transfer};

/// Everything that is in a run's folder, as Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    table::<PacketRow>(
        &mut page,
        "one row per packet and pipe, in the order of arrival",
    );
    table::<FlowSample>(
        &mut page,
        "a flow at an instant; what its type or the backend does not know is empty, and counts grow \
         from the start of the flow",
    );
    table::<QueueSample>(
        &mut page,
        "a variable of a pipe or of its queue at an instant: `backlog_packets` and `backlog_bytes` \
         of the whole pipe, and what the algorithm remembers, per queue",
    );
    table::<PingSample>(
        &mut page,
        "one row per probe, per packet of a call, or per request",
    );
    table::<Transfer>(&mut page, "one row per complete transfer or page");
    table::<Release>(
        &mut page,
        "one row per packet that a live router sent on: how exact the emulation was",
    );
    table::<Arrival>(
        &mut page,
        "one row per packet that a live router queued: what `sluice replay RUN` feeds to the queues",
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
| `run.json` | the scenario with everything set (as JSON and as TOML to run it again), seed, versions, host, kernel, the flows with their numbers, SHA-256 of the tables and of the program, and how the run ended: `running`, `complete`, or `partial` with the reason |
| `packets.parquet`, `flows.parquet`, `queues.parquet`, `pings.parquet`, `transfers.parquet`, `releases.parquet`, `arrivals.parquet` | the tables below |
| `summary.json` | the run in figures |
| `report.html` | the run in pictures |

A file bears its name only when it is whole; until then it ends in `.part`. A run that was interrupted keeps
what it has. Of one that was killed (`kill -9`), the next command that sees the folder says so in `run.json`.

All times are nanoseconds of the run. `flow` is the number of the flow in `run.json`; packets of no flow have
4294967295. The tables are Parquet (Snappy); any reader takes them:

```python
import pyarrow.parquet as pq
packets = pq.read_table(\"runs/first-light/codel/packets.parquet\").to_pandas()
packets[packets.verdict == \"dropped\"].groupby(\"reason\").size()
```

Percentiles in `summary.json` are values that occurred: the smallest for which at least that part of all values
is not larger (RFC 2330 section 11.3). Figures leave out the warm-up, of the run for the link and of each flow for
the flow; a flow with `bytes` is measured whole.
";
