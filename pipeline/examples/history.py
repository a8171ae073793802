"""Explores share groups in Spark, cell by cell: `python history.py [store] [directory]`.

    sharegroups metrics ingest --store redis://127.0.0.1:6379 --data history

Run it as it is, or in an editor that shows `# %%` as cells of a notebook.
"""

# %% A session with the source `redis_streams`; it needs pip install '.[metrics]'
import sys

from share_metrics.questions import QUESTIONS
from share_metrics.spark import build_session
from share_metrics.views import register_history

store = sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379"
data = sys.argv[2] if len(sys.argv) > 2 else "history"
spark = build_session("history")

# %% The current contents of the store: a row for each entry, not only for records
rows = spark.read.format("redis_streams").options(url=store, kind="share_state").load()
rows.groupBy("stream", "record_type").count().orderBy("stream", "record_type").show()

# %% The answers to ten questions, as of the time up to which `ingest` has read
times = register_history(spark, data)
print(f"{times.begin:%Y-%m-%d %H:%M:%S} to {times.at:%H:%M:%S} UTC\n")
for question in QUESTIONS:
    print(question.asks)
    spark.table(question.view).show(truncate=False)

# %% Your own question, over the tables that these views read
spark.sql("""
    SELECT window, sum(arrived) AS arrived, sum(finished) AS finished, sum(lag) AS lag
    FROM share_windows WHERE finished > 0 GROUP BY window ORDER BY window
""").show()
