from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster

# A program that tests start with the Python that has Mininet.
collect_ignore = ["mininet_net.py"]


@pytest.fixture(scope="session")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder that all workers share, including those that replace lost ones."""
    folder = tmp_path_factory.mktemp("tries")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLUICE_TEST_TRIES", str(folder))
        yield folder


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, noted: Path) -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as cluster:
        yield cluster
