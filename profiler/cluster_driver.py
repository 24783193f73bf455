"""The process that speaks with Ray: orders come in as lines of JSON, and what became of them goes out.

Ray may hang, write to the terminal, or end its process where a cluster is lost; none of it is to happen to Bytescope.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from typing import Any, TextIO

from profiler import cluster_cell
from profiler.child import words_of
from profiler.commit import VARIABLE, bytescopes
from profiler.worker import START_TIMEOUT
from profiler.workload import CPU

GPU = "cuda:0"  # Ray shows a task only what it lends
AUTO = "auto"
MAX_RETRIES = 3  # of a cell whose process or node is lost
SPARE = 2  # cells that wait at the cluster, so that no device waits for the next
ROOM_SECONDS = 2.0
CONNECT_SECONDS = 3.0
MAX_ORDER_BYTES = 2**20


class Driver:
    """A connection to a cluster: GPUs where it has some, else its processors."""

    def __init__(self, ray: Any, out: TextIO) -> None:
        self._ray, self._out = ray, out
        self.device = GPU if self._count("GPU") else CPU
        lent = {"num_gpus": 1, "num_cpus": 0, "max_calls": 0} if self.device == GPU else {"num_cpus": 1}
        self._home = ray.get_runtime_context().get_node_id()
        self._measured = ray.remote(**lent, max_retries=MAX_RETRIES)(cluster_cell.measured)

    def say(self, **words: Any) -> None:
        """One line to the parent."""
        print(json.dumps(words), file=self._out, flush=True)

    async def serve(self) -> None:
        """Carry out orders until the parent hangs up."""
        orders = asyncio.StreamReader(limit=MAX_ORDER_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
        tasks = {asyncio.create_task(self._tell_room())}
        while line := await orders.readline():
            task = asyncio.create_task(self._follow(line.decode()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()

    async def _follow(self, text: str) -> None:
        """Send one cell, and pass on what comes back."""
        order = json.loads(text)
        cell = order["cell"]
        # The node keeps the time; this is for one that has fallen silent, and for all that Ray tries in between.
        patience = (1 + MAX_RETRIES) * (3 * START_TIMEOUT + order["timeout"])
        answers = self._measured.remote(text)
        try:
            async with asyncio.timeout(None) as limit:
                async for reference in answers:
                    limit.reschedule(asyncio.get_running_loop().time() + patience)
                    self.say(cell=cell, **json.loads(await reference))
        except TimeoutError:
            self._ray.cancel(answers, force=True)
            self.say(cell=cell, failed=f"Its node gave no answer within {patience:.0f} s.")
        except Exception as error:  # whatever Ray raises becomes a sentence
            self.say(cell=cell, **self._what_it_means(error))

    def _what_it_means(self, error: Any) -> dict[str, str]:
        known = self._ray.exceptions
        is_of_the_task = isinstance(error, known.RayTaskError)
        words = words_of(error.cause if is_of_the_task else error).rstrip(" .")
        if is_of_the_task or isinstance(error, known.RuntimeEnvSetupError):
            return {"unfit": f"Bytescope does not run there: {words}; install requirements-ray.txt on every node."}
        return {"failed": f"Its process or its node was lost each time, {1 + MAX_RETRIES} times in all: {words}."}

    async def _tell_room(self) -> None:
        """How many cells are wanted, as nodes come and go; without the node here Ray would be silent for ever."""
        told = None
        while True:
            if not any(node["NodeID"] == self._home and node["Alive"] for node in self._ray.nodes()):
                print("the Ray node that this machine is was lost", file=sys.stderr, flush=True)
                os._exit(1)
            room = self.workers + SPARE
            if room != told:
                self.say(room=room)
            told = room
            await asyncio.sleep(ROOM_SECONDS)

    @property
    def workers(self) -> int:
        """How many cells the cluster can run at once now."""
        return self._count("CPU" if self.device == CPU else "GPU")

    def _count(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))


def connect(address: str, code: str) -> Any:
    """Ray, once it knows the cluster; a node gets the folder `code`. Raises what is wrong."""
    if address != AUTO:
        host, _, port = address.rpartition(":")
        # Ray would try for longer than anyone waits.
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    import ray

    copied = {"working_dir": code, "env_vars": {VARIABLE: bytescopes()}}
    ray.init(address, runtime_env=copied, log_to_driver=False, logging_level=logging.CRITICAL)
    return ray


def main(address: str, code: str, out: TextIO) -> None:
    """Say {"ready": device, "workers"} or {"refused": why}, and serve."""
    try:
        driver = Driver(connect(address, code), out)
    except Exception as error:  # the parent makes a sentence of it
        print(json.dumps({"refused": words_of(error)}), file=out, flush=True)
        return
    driver.say(ready=driver.device, workers=driver.workers)
    asyncio.run(driver.serve())


if __name__ == "__main__":
    # What Ray prints is no answer.
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.argv[1], sys.argv[2], said)
