"""Answers: as jobs have them, as they are kept, and what they say."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import JSON

from app.models.base import ZERO, metadata, moment

answers = Table(
    "answers",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("text", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False, server_default=ZERO),
    Column("completion_tokens", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("revision", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    # Null where there are none, and in answers of 0.1.0.
    Column("logprobs", JSON),
    Column("notes", JSON),
    Column("reasoning", Text),  # of a model that thinks aloud before it answers
    Column("model_s", Float),
    Column("confidence", Float),  # of the model that a cascade asks first
    # Of cascades' jobs alone: the console finds what the first model was unsure of.
    Index("ix_answers_confidence", "job_id", "confidence", postgresql_where=text("confidence IS NOT NULL")),
)

# Answers by what was asked of which images, under the engine that gave them.
answer_cache = Table(
    "answer_cache",
    metadata,
    Column("key", LargeBinary, primary_key=True),
    Column("fingerprint", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),  # whose job it was
    Column("model", Text, nullable=False),
    Column("question_id", LargeBinary, nullable=False),  # of the last text alone, to be forgotten by
    Column("text", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("revision", Text, nullable=False),
    Column("logprobs", JSON),
    Column("notes", JSON),
    Column("reasoning", Text),
    Column("model_s", Float, nullable=False),
    Column("confidence", Float),
    moment("created_at", nullable=False, now=True),
    moment("expires_at", nullable=False),
    Index("ix_answer_cache_expires_at", "expires_at"),
    Index("ix_answer_cache_tenant_id_model_question_id", "tenant_id", "model", "question_id"),
)

# The engine that answered for a model last: what its answers are kept under.
engines = Table(
    "engines",
    metadata,
    Column("model", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    moment("seen_at", nullable=False, now=True),
)

# What answers under a choice list or a JSON schema say, value by value; with what they are found by.
labels = Table(
    "labels",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),  # '' for the answer as a whole
    Column("place", SmallInteger, primary_key=True),  # in a list of values
    Column("value", Text, nullable=False),
    Column("tenant_id", Text, nullable=False),
    Column("batch_id", Text),
    Column("question", Text),
    Column("item", Text),
    Column("policy_version", Text),
    Column("model", Text, nullable=False),
    moment("created_at", nullable=False, now=True),
    Column("confidence", Float),  # of the whole answer, where it is known
    Index("ix_labels_newest", "tenant_id", "created_at", "job_id", "field", "place"),
    Index("ix_labels_question", "tenant_id", "question", "value", "created_at"),
    Index("ix_labels_batch", "batch_id", "created_at", "job_id", "field", "place"),
    Index("ix_labels_value", "batch_id", "field", "value", "job_id"),
    Index("ix_labels_item", "tenant_id", "item"),
    Index(
        "ix_labels_confidence",
        "tenant_id",
        "confidence",
        "job_id",
        "field",
        postgresql_where=text("confidence IS NOT NULL"),
    ),
)

# What people say of a field of an answer.
reviews = Table(
    "reviews",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("verdict", Text, nullable=False),  # confirm or overturn
    Column("label", JSON),  # the right value of what was overturned
    Column("note", Text),
    Column("key_id", Text),
    moment("at", nullable=False, now=True),
    Index("ix_reviews_tenant_id_job_id_field", "tenant_id", "job_id", "field"),
)

# What each person has said of it last; the review is what was said last of all.
review_votes = Table(
    "review_votes",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("tenant_id", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("label", JSON),
    Column("note", Text),
    moment("at", nullable=False, now=True),
    Index("ix_review_votes_tenant_id_job_id_field", "tenant_id", "job_id", "field"),
)

# Who looks at it now, in the queue of the console; over by itself.
review_claims = Table(
    "review_claims",
    metadata,
    Column("job_id", BigInteger, primary_key=True),
    Column("field", Text(collation="C"), primary_key=True),
    Column("holder", Text, nullable=False),
    moment("until", nullable=False),
)
