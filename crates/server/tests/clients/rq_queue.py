"""RQ against a server: rq_queue.py PORT. Jobs that depend on others, fail, are tried again and repeated
by several workers; queues are emptied by a script."""

import sys
import threading

import redis
from rq import Queue, Retry, SimpleWorker
from rq.job import JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry
from rq.timeouts import TimerDeathPenalty

import rq_jobs

PORT = int(sys.argv[1])


class ThreadWorker(SimpleWorker):
    """Works inside of a thread, where there are no signals."""

    death_penalty_class = TimerDeathPenalty

    def _install_signal_handlers(self):
        pass


def work(name):
    connection = redis.Redis(port=PORT)
    queues = [Queue(queue, connection=connection) for queue in ("high", "low")]
    ThreadWorker(queues, connection=connection, name=name).work(burst=True, logging_level="ERROR")


r = redis.Redis(port=PORT)
r.flushall()
high, low = Queue("high", connection=r), Queue("low", connection=r)
sums = [(high if number % 3 == 0 else low).enqueue(rq_jobs.add, number, 1) for number in range(40)]
follower = low.enqueue(rq_jobs.add, 100, 1, depends_on=sums[0])
failing = low.enqueue(rq_jobs.fail, retry=Retry(max=2))
many = low.enqueue_many([Queue.prepare_data(rq_jobs.add, (number, number)) for number in range(5)])

workers = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()

assert [job.return_value(refresh=True) for job in sums] == list(range(1, 41))
assert follower.return_value(refresh=True) == 101
assert [job.return_value(refresh=True) for job in many] == [0, 2, 4, 6, 8]
assert failing.get_status(refresh=True) == JobStatus.FAILED, failing.get_status()
assert len(FailedJobRegistry(queue=low)) == 1
assert len(FinishedJobRegistry(queue=low)) + len(FinishedJobRegistry(queue=high)) == 46
assert high.is_empty() and low.is_empty()
dropped = [high.enqueue(rq_jobs.add, number, number) for number in range(10)]
assert high.empty() == 10
assert high.is_empty() and not r.exists(*(job.key for job in dropped))
print("RQ: passed")
