"""Answers of pipelines wait until the log has persisted what they rest on."""

from syncpoint.base.runtime.tasks import outcome_of
from syncpoint.broker.publish.intake.forwarder import PublishForwarder


async def persisted(publish: PublishForwarder) -> None:
    """Return once everything that the log was given is persisted: only then may be answered what follows from it.
    Raises `Unavailable` where that is unknown, as it is of a log that has failed.
    """
    publish.commit.check_writable()
    if publish.store.persisted >= publish.store.appended:
        return
    waiting, on_outcome = outcome_of("answer to what was asked")
    publish.commit.when_acks_persisted(on_outcome)
    await waiting
