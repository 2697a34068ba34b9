import os

from celery import Celery

URL = f"redis://127.0.0.1:{os.environ['BROKER_PORT']}/0"
app = Celery("tasks", broker=URL, backend=URL)
app.conf.broker_transport_options = {"priority_steps": [0, 5], "global_keyprefix": "app:"}
app.conf.result_extended = True


@app.task
def add(one, two):
    return one + two


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def stumble(self):
    if self.request.retries < 2:
        raise self.retry()
    return self.request.retries
