"""What a declaration can get wrong by itself: each mistake gives its finding."""

from pathlib import Path

import pytest

from deltaworks.catalog import Finding, check
from tests.mistakes import CITIES, DAYS, LETTERS, MEMBERS, NOTES, Delete, Edit, Mistake, Write
from tests.tiny_project import Project

WITHOUT_COLUMNS = '''\
"""Members."""

from deltaworks.words import Table, json, latest

TABLE = Table(
    app="tiny",
    reads=json("bronze.letters", topic="members"),
    kept_as=latest(keys=("member_id",)),
    owner="tests",
)
'''
EXACT = "Use bigint, or decimal(p,s) with p below 38: sums of these are exact, or noticed as too large"
ABSENT = "Take it out; a history refuses changes that leave values out: keep a latest table beside it"
MISTAKES = [
    Mistake(
        "syntax error",
        [Edit(NOTES, '    owner="tests",', '    owner="tests"\n    late=')],
        [
            Finding(
                place=f"{NOTES}:17",
                finding="not Python: invalid syntax. Perhaps you forgot a comma",
                next_step="Mend the line",
            )
        ],
    ),
    Mistake(
        "exception",
        [Edit(NOTES, "TABLE = Table(", "LIMIT = 1 / 0\nTABLE = Table(")],
        [Finding(place=f"{NOTES}:5", finding="ZeroDivisionError: division by zero", next_step="Mend the declaration")],
    ),
    Mistake(
        "no TABLE",
        [Edit(NOTES, "TABLE = Table(", "table = Table(")],
        [Finding(place=NOTES, finding="there is no TABLE", next_step="Write TABLE = Table(...)")],
    ),
    Mistake(
        "TABLE is something else",
        [
            Edit(
                LETTERS,
                'TABLE = Table(app="tiny", reads=kafka("notes", "members"), kept_as=raw(), owner="tests")',
                "TABLE = 3",
            )
        ],
        [Finding(place=LETTERS, finding="TABLE is 3", next_step="Write TABLE = Table(...)")],
    ),
    Mistake(
        "misspelt field",
        [Edit(NOTES, '    owner="tests",', '    ovner="tests",')],
        [Finding(place=f"{NOTES}:5", finding="Table has no field 'ovner'", next_step="The nearest is owner")],
    ),
    Mistake(
        "missing field",
        [Edit(NOTES, '    owner="tests",', "")],
        [Finding(place=f"{NOTES}:5", finding="Table lacks owner", next_step="Give every field that has no default")],
    ),
    Mistake(
        "unknown word",
        [Edit(DAYS, "correct, greatest", "corect, greatest")],
        [Finding(place=f"{DAYS}:3", finding="deltaworks.words has no corect", next_step="The nearest is correct")],
    ),
    Mistake(
        "unknown name",
        [Edit(NOTES, "kept_as=append(", "kept_as=apend(")],
        [Finding(place=f"{NOTES}:8", finding="apend is not defined", next_step="The nearest is append")],
    ),
    Mistake(
        "wrong word",
        [Edit(NOTES, 'reads=json("bronze.letters", topic="notes", unknown_fields=refuse())', "reads=append()")],
        [
            Finding(
                place=f"{NOTES}:7",
                finding="reads holds append(...)",
                next_step='Give kafka(...) or json(...) or debezium(...) or text or a tuple of text, as in ("a",)',
            )
        ],
    ),
    Mistake(
        "keys without their comma",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id")')],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="kept_as.keys holds 'member_id'",
                next_step='Give a tuple of text, as in ("a",)',
            )
        ],
    ),
    Mistake(
        "a number for text",
        [Edit(CITIES, '    owner="tests",', "    owner=3,")],
        [Finding(place=f"{CITIES}:14", finding="owner holds 3", next_step="Give text")],
    ),
    Mistake(
        "unknown way to combine",
        [Edit(DAYS, '"notes": add', '"notes": "mean"')],
        [
            Finding(
                place=f"{DAYS}:8",
                finding="kept_as.combine['notes'] holds 'mean'",
                next_step="Give add or least or greatest",
            )
        ],
    ),
    Mistake(
        "imports pyspark",
        [Edit(NOTES, "from deltaworks.words", "from pyspark.sql import functions\nfrom deltaworks.words")],
        [
            Finding(
                place=f"{NOTES}:3",
                finding="table.py imports pyspark.sql",
                next_step="Import deltaworks.words only; DataFrames belong in transform.py",
            )
        ],
    ),
    Mistake(
        "no docstring",
        [Edit(LETTERS, '"""Notes and members, as they came."""\n', "")],
        [
            Finding(
                place=f"{LETTERS}:1",
                finding="there is no docstring",
                next_step="Say in a line what the table holds and what one row is",
            )
        ],
    ),
    Mistake(
        "empty owner",
        [Edit(NOTES, 'owner="tests"', 'owner=" "')],
        [Finding(place=f"{NOTES}:17", finding="the owner is empty", next_step="Name who answers for the table")],
    ),
    Mistake(
        "bad app name",
        [Edit(NOTES, 'app="tiny"', 'app="Tiny App"')],
        [
            Finding(
                place=f"{NOTES}:6",
                finding="'Tiny App' cannot be an app's name",
                next_step="Use lower-case letters, digits and _, a letter first, at most 63",
            ),
            Finding(
                place=f"{DAYS}:6",
                finding="two owners: this table is of app tiny, its input silver.notes of Tiny App",
                next_step="Give both the same app: a table and its inputs have one owner",
            ),
            Finding(
                place=f"{NOTES}:6",
                finding="two owners: this table is of app Tiny App, its input bronze.letters of tiny",
                next_step="Give both the same app: a table and its inputs have one owner",
            ),
        ],
    ),
    Mistake(
        "no days to keep",
        [Edit(NOTES, '    owner="tests",', '    owner="tests",\n    keep_days=0,')],
        [
            Finding(
                place=f"{NOTES}:18",
                finding="keep_days is below 1",
                next_step="Keep at least a day, or leave keep_days out",
            )
        ],
    ),
    Mistake(
        "days that rows of now are kept",
        [
            Edit(LETTERS, 'owner="tests")', 'owner="tests", keep_days=9)'),
            Edit(MEMBERS, '    owner="tests",', '    owner="tests",\n    keep_days=9,'),
            Edit(CITIES, '    owner="tests",', '    owner="tests",\n    keep_days=9,'),
        ],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="bronze is kept whole: all tables are computed from it again",
                next_step="Take it out: declare it in the tables above",
            ),
            Finding(
                place=f"{CITIES}:15",
                finding="a view table says what holds, however long ago it began",
                next_step="Take it out",
            ),
            Finding(
                place=f"{MEMBERS}:18",
                finding="a latest table says what holds, however long ago it began",
                next_step="Take it out",
            ),
        ],
    ),
    Mistake(
        "days of rows without a time",
        [
            Edit(NOTES, '    owner="tests",', '    owner="tests",\n    keep_days=9,'),
            Edit(NOTES, '    event_time="written_at",\n', ""),
            Edit(DAYS, '    owner="tests",', '    owner="tests",\n    keep_days=8,'),
            Edit(DAYS, '    event_time="day",\n', '    event_time="last",\n'),
            Edit(DAYS, "    late=correct(after=hours(1)),\n", ""),
        ],
        [
            Finding(
                place=f"{DAYS}:18",
                finding="event_time last is no key: old rows and new ones go up in one group",
                next_step="Add it to the keys, or take keep_days out",
            ),
            Finding(
                place=f"{NOTES}:17",
                finding="keep_days without event_time: no row is old",
                next_step="Name the column that says when it happened, or take keep_days out",
            ),
            Finding(
                place=f"{DAYS}:18",
                finding="silver.notes has no event_time, so nothing is ever past",
                next_step="Name its event_time, or take keep_days out",
            ),
        ],
    ),
    Mistake(
        "what is computed is kept for longer",
        [
            Edit(NOTES, '    owner="tests",', '    owner="tests",\n    keep_days=9,'),
            Edit(DAYS, '    owner="tests",', '    owner="tests",\n    keep_days=9,'),
        ],
        [
            Finding(
                place=f"{DAYS}:19",
                finding="keeps its rows for 9 days, silver.notes those that they are computed from for 9 days",
                next_step="Keep fewer than 9 days here, or more in silver.notes",
            )
        ],
    ),
    Mistake(
        "unknown layer",
        [Write("tables/sliver/x/table.py", "")],
        [Finding(place="tables/sliver", finding="there is no layer sliver", next_step="The nearest is silver")],
    ),
    Mistake(
        "bad table name",
        [Write("tables/silver/Notes-2/table.py", "")],
        [
            Finding(
                place="tables/silver/Notes-2",
                finding="'Notes-2' cannot be a table's name",
                next_step="Use lower-case letters, digits and _, a letter first, at most 63",
            )
        ],
    ),
    Mistake(
        "no table.py",
        [Write("tables/silver/drafts/cases/x.yml", "")],
        [
            Finding(
                place="tables/silver/drafts",
                finding="there is no table.py",
                next_step="Declare the table there, or delete the folder",
            )
        ],
    ),
    Mistake(
        "bronze is not kafka",
        [Edit(LETTERS, 'kafka("notes", "members")', '"silver.notes"')],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="a bronze table reads Kafka",
                next_step="Write kafka(...), or move the folder",
            ),
            Finding(
                place=f"{LETTERS}:5",
                finding="a cycle: bronze.letters reads silver.notes reads bronze.letters",
                next_step="Let one of them read something else",
            ),
        ],
    ),
    Mistake(
        "word that is not imported",
        [Edit(LETTERS, "kept_as=raw()", "kept_as=append()")],
        [Finding(place=f"{LETTERS}:5", finding="append is not defined", next_step="Import it from deltaworks.words")],
    ),
    Mistake(
        "silver reads kafka",
        [
            Edit(NOTES, 'reads=json("bronze.letters", topic="notes", unknown_fields=refuse())', 'reads=kafka("notes")'),
            Edit(NOTES, "append, json", "append, kafka"),
        ],
        [
            Finding(
                place=f"{NOTES}:7",
                finding="a silver table reads Kafka",
                next_step="Read it into a bronze table, and that one here",
            )
        ],
    ),
    Mistake(
        "gold parses",
        [
            Edit(CITIES, 'reads="silver.members"', 'reads=json("bronze.letters", topic="members")'),
            Edit(CITIES, "Table, view", "Table, json, view"),
        ],
        [
            Finding(
                place=f"{CITIES}:7",
                finding="a gold table parses",
                next_step="Parse in a silver table, and read that one here",
            )
        ],
    ),
    Mistake(
        "debezium append",
        [
            Edit(
                NOTES,
                'reads=json("bronze.letters", topic="notes", unknown_fields=refuse())',
                'reads=debezium("bronze.letters", table="public.notes")',
            ),
            Edit(NOTES, "append, json", "append, debezium"),
        ],
        [
            Finding(
                place=f"{NOTES}:8",
                finding="append does not go with reading Debezium",
                next_step="Write latest(...) or history(...)",
            )
        ],
    ),
    Mistake(
        "history of events",
        [Edit(MEMBERS, "kept_as=latest(", "kept_as=history("), Edit(MEMBERS, "json, latest", "history, json")],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="a history over JSON without by: nothing tells from when on a state held",
                next_step='Name a timestamp or date of the state, as in by="changed_at", or one with wire="arrival"',
            )
        ],
    ),
    *(
        Mistake(
            f"history by {what}",
            [
                Edit(MEMBERS, 'latest(keys=("member_id",))', f'history(keys=("member_id",), by="{by}")'),
                Edit(MEMBERS, "json, latest", "history, json"),
            ],
            findings,
        )
        for what, by, findings in (
            (
                "what is no time",
                "dues",
                [
                    Finding(
                        place=f"{MEMBERS}:8",
                        finding="by dues is of type decimal(8,2): "
                        "no order but time gives the interval in which a state held",
                        next_step="Name a column of type date or timestamp, or keep it as latest",
                    )
                ],
            ),
            (
                "a time that may be null",
                "joined",
                [
                    Finding(
                        place=f"{MEMBERS}:14",
                        finding="column joined: places states, but may be null",
                        next_step="Write null=False: a state without it is refused",
                    )
                ],
            ),
            (
                "no column",
                "join",
                [Finding(place=f"{MEMBERS}:8", finding="by join is not declared", next_step="The nearest is joined")],
            ),
        )
    ),
    Mistake(
        "history by a key",
        [
            Edit(MEMBERS, 'kept_as=latest(keys=("member_id",))', 'kept_as=history(keys=("joined",), by="joined")'),
            Edit(MEMBERS, "json, latest", "history, json"),
            Edit(MEMBERS, 'Column("joined", "date", ', 'Column("joined", "date", null=False, '),
        ],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by joined is a key: all states of a key have the same",
                next_step="Name the column that says which state is newer",
            )
        ],
    ),
    Mistake(
        "history by over changes of a database",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, 'kept_as=latest(keys=("member_id",))', 'kept_as=history(keys=("member_id",), by="joined")'),
            Edit(MEMBERS, "Table, json, latest", "Table, debezium, history"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by joined means nothing here: the database's log places its changes",
                next_step="Take by out",
            )
        ],
    ),
    Mistake(
        "history's own column",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, 'latest(keys=("member_id",))', 'history(keys=("valid_to",))'),
            Edit(MEMBERS, "Table, json, latest", "Table, debezium, history"),
            Edit(MEMBERS, 'Column("joined", "date"', 'Column("Valid_From", "date"'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:14",
                finding="column Valid_From: a history has it by itself",
                next_step="Take it out, or take another name",
            ),
            Finding(
                place=f"{MEMBERS}:8",
                finding="key valid_to is a column that the history makes itself",
                next_step='Declare the field under another name: Column("since", ..., previously="valid_to")',
            ),
        ],
    ),
    Mistake(
        "history by its own column",
        [
            Edit(MEMBERS, 'latest(keys=("member_id",))', 'history(keys=("member_id",), by="valid_from")'),
            Edit(MEMBERS, "json, latest", "history, json"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by valid_from is a column that the history makes itself",
                next_step='Declare the field under another name: Column("since", ..., previously="valid_from")',
            )
        ],
    ),
    Mistake(
        "by is no column",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id",), by="dies"')],
        [Finding(place=f"{MEMBERS}:8", finding="by dies is not declared", next_step="The nearest is dues")],
    ),
    Mistake(
        "by has no order",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id",), by="city"')],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by city is of type string",
                next_step="Name a column of type int, bigint, decimal, date or timestamp",
            )
        ],
    ),
    Mistake(
        "by may be null",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id",), by="joined"')],
        [
            Finding(
                place=f"{MEMBERS}:14",
                finding="column joined: places states, but may be null",
                next_step="Write null=False: a state without it is refused",
            )
        ],
    ),
    Mistake(
        "by is a key",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id",), by="member_id"')],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by member_id is a key: all states of a key have the same",
                next_step="Name the column that says which state is newer",
            )
        ],
    ),
    Mistake(
        "by over changes of a database",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
            Edit(MEMBERS, 'keys=("member_id",)', 'keys=("member_id",), by="dues"'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:8",
                finding="by dues means nothing here: the database's log places its changes",
                next_step="Take by out",
            )
        ],
    ),
    Mistake(
        "absent of states",
        [Edit(MEMBERS, 'doc="Day of joining, if known."', 'absent="kept", doc="Day of joining, if known."')],
        [
            Finding(
                place=f"{MEMBERS}:14",
                finding='column joined: absent="kept" is for what is kept as latest over debezium(...)',
                next_step=ABSENT,
            )
        ],
    ),
    Mistake(
        "absent of a key",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
            Edit(MEMBERS, 'doc="Given when', 'absent="kept", doc="Given when'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:10",
                finding='column member_id: absent="kept", but each change has it',
                next_step="Take it out",
            )
        ],
    ),
    Mistake(
        "absent where rows leave their keys",
        [
            Edit(
                MEMBERS,
                'json("bronze.letters", topic="members")',
                'debezium("bronze.letters", table="a.members", replica_identity="full")',
            ),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
            Edit(MEMBERS, 'doc="Day of joining, if known."', 'absent="kept", doc="Day of joining, if known."'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:14",
                finding='column joined: absent="kept" beside replica_identity="full": a row that gets other keys would'
                " lose it",
                next_step="Take the column out and compute it in a table above; or keep the table by its records' key,"
                " without replica_identity",
            )
        ],
    ),
    Mistake(
        "absent of a column that may not be null",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="a.members")'),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
            Edit(MEMBERS, 'doc="Paid per year, in', 'absent="kept", doc="Paid per year, in'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:13",
                finding='column dues: absent="kept" with null=False: each new row without it is refused',
                next_step="Let it be null: what is inserted without it has null until the next snapshot",
            )
        ],
    ),
    Mistake(
        "debezium partitions",
        [
            Edit(
                MEMBERS,
                'json("bronze.letters", topic="members")',
                'debezium("bronze.letters", table="a.members", partitions="members_*")',
            ),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:7",
                finding="'members_*' names no partitions",
                next_step='Write schema and name, as in "public.orders_*"',
            )
        ],
    ),
    Mistake(
        "debezium table",
        [
            Edit(MEMBERS, 'json("bronze.letters", topic="members")', 'debezium("bronze.letters", table="members")'),
            Edit(MEMBERS, "Table, json", "Table, debezium"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:7",
                finding="'members' is no source table",
                next_step='Write schema and name, as in "public.orders"',
            )
        ],
    ),
    Mistake(
        "latest over a table",
        [Edit(CITIES, "view(keys", "latest(keys"), Edit(CITIES, "Table, view", "Table, latest")],
        [
            Finding(
                place=f"{CITIES}:8",
                finding="latest does not go with reading tables",
                next_step="Write aggregate(...) or view(...) or stateful(...)",
            )
        ],
    ),
    Mistake(
        "event_time in bronze",
        [Edit(LETTERS, "kept_as=raw()", 'kept_as=raw(), event_time="timestamp"')],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="event_time means nothing in a raw table",
                next_step="Take it out: declare it in the silver table",
            )
        ],
    ),
    Mistake(
        "no topic",
        [Edit(LETTERS, 'kafka("notes", "members")', "kafka()")],
        [Finding(place=f"{LETTERS}:5", finding="kafka() names no topic", next_step="Name the topics to read")],
    ),
    Mistake(
        "a topic named twice",
        [Edit(LETTERS, 'kafka("notes", "members")', 'kafka("notes", "members", "notes")')],
        [Finding(place=f"{LETTERS}:5", finding="a topic is named twice", next_step="Name each topic once")],
    ),
    Mistake(
        "reads nothing",
        [Edit(CITIES, 'reads="silver.members"', "reads=()")],
        [Finding(place=f"{CITIES}:7", finding="reads names no table", next_step="Name the tables to read")],
    ),
    Mistake(
        "no columns",
        [
            Delete("expectations/silver/members.yml"),
            Delete("tables/gold/members_per_city"),
            Delete("expectations/gold/members_per_city.yml"),
            Write(
                MEMBERS,
                WITHOUT_COLUMNS,
            ),
        ],
        [
            Finding(
                place=f"{MEMBERS}:5",
                finding="there are no columns",
                next_step="Declare the columns: they are the schema",
            ),
            Finding(
                place="expectations/silver/members.yml",
                finding="the suite is missing",
                next_step="Write expectations: [...]",
            ),
        ],
    ),
    Mistake(
        "reserved column",
        [Edit(MEMBERS, 'Column("name"', 'Column("_name"')],
        [
            Finding(
                place=f"{MEMBERS}:11",
                finding="column _name: names that start with _ are the engine's",
                next_step="Take another name",
            )
        ],
    ),
    Mistake(
        "a blank in a column's name",
        [Edit(MEMBERS, 'Column("name"', 'Column("the name"')],
        [
            Finding(
                place=f"{MEMBERS}:11",
                finding="column the name: cannot be a column's name",
                next_step="Use letters, digits and _, a letter first",
            )
        ],
    ),
    Mistake(
        "column declared twice",
        [Edit(MEMBERS, 'Column("name"', 'Column("dues"')],
        [Finding(place=f"{MEMBERS}:13", finding="column dues: is declared twice", next_step="Keep one of them")],
    ),
    Mistake(
        "columns that differ by case",
        [Edit(MEMBERS, 'Column("name"', 'Column("City"')],
        [
            Finding(
                place=f"{MEMBERS}:12",
                finding="column city: differs from City by case only",
                next_step="Keep one of them",
            )
        ],
    ),
    Mistake(
        "empty doc",
        [Edit(MEMBERS, 'doc="As the member gave it."', 'doc=""')],
        [
            Finding(
                place=f"{MEMBERS}:11", finding="column name: has no doc", next_step="Say what it means, with its unit"
            )
        ],
    ),
    Mistake(
        "missing doc",
        [Edit(MEMBERS, ', doc="As the member gave it."', "")],
        [Finding(place=f"{MEMBERS}:11", finding="Column lacks doc", next_step="Give every field that has no default")],
    ),
    Mistake(
        "a second spelling of a type",
        [Edit(MEMBERS, '"decimal(8,2)"', '"decimal(8, 2)"')],
        [
            Finding(
                place=f"{MEMBERS}:13",
                finding="column dues: type 'decimal(8, 2)': there is no such type",
                next_step="Write decimal(8,2)",
            )
        ],
    ),
    Mistake(
        "another system's type",
        [Edit(NOTES, '"bigint"', '"long"')],
        [
            Finding(
                place=f"{NOTES}:12",
                finding="column member_id: type 'long': there is no such type",
                next_step="Write bigint",
            )
        ],
    ),
    Mistake(
        "misspelt type",
        [Edit(NOTES, '"bigint"', '"bigit"')],
        [
            Finding(
                place=f"{NOTES}:12",
                finding="column member_id: type 'bigit': there is no such type",
                next_step="Write bigint",
            )
        ],
    ),
    Mistake(
        "impossible decimal",
        [Edit(MEMBERS, '"decimal(8,2)"', '"decimal(39,2)"')],
        [
            Finding(
                place=f"{MEMBERS}:13",
                finding="column dues: type 'decimal(39,2)': this decimal cannot be",
                next_step="Precision is 1 to 38, scale at most precision",
            )
        ],
    ),
    Mistake(
        "wire of another type",
        [Edit(NOTES, 'wire="millis"', 'wire="days"')],
        [
            Finding(
                place=f"{NOTES}:11",
                finding="column written_at: wire 'days' does not go with timestamp",
                next_step="Write micros or millis or seconds or arrival",
            )
        ],
    ),
    Mistake(
        "arrival as a key",
        [
            Edit(MEMBERS, 'keys=("member_id",)', 'keys=("joined",)'),
            Edit(MEMBERS, 'Column("joined", "date"', 'Column("joined", "timestamp", null=False, wire="arrival"'),
        ],
        [
            Finding(
                place=f"{MEMBERS}:14",
                finding="column joined: tells rows apart, but is the time of arrival",
                next_step="Take one that the source sends: when a record arrived does not say which row it is about",
            )
        ],
    ),
    Mistake(
        "copies known by their arrival",
        [
            Edit(NOTES, 'dedupe_by=("note_id",)', 'dedupe_by=("written_at",)'),
            Edit(NOTES, 'wire="millis"', 'wire="arrival"'),
        ],
        [
            Finding(
                place=f"{NOTES}:11",
                finding="column written_at: tells rows apart, but is the time of arrival",
                next_step="Take one that the source sends: when a record arrived does not say which row it is about",
            )
        ],
    ),
    Mistake(
        "copies known by a double",
        [
            Edit(NOTES, 'dedupe_by=("note_id",)', 'dedupe_by=("note_id", "words")'),
            Edit(NOTES, 'Column("words", "int"', 'Column("words", "double"'),
        ],
        [
            Finding(
                place=f"{NOTES}:13",
                finding="column words: tells copies, but is a double: NaN is like no value, not like NaN either",
                next_step="Take a column of another type, or declare it as decimal",
            )
        ],
    ),
    Mistake(
        "wire of a plain type",
        [Edit(NOTES, 'Column("words", "int", null=False', 'Column("words", "int", null=False, wire="millis"')],
        [
            Finding(
                place=f"{NOTES}:13", finding="column words: wire 'millis' does not go with int", next_step="Take it out"
            )
        ],
    ),
    Mistake(
        "wire in gold",
        [Edit(DAYS, 'Column("last", "timestamp", null=False', 'Column("last", "timestamp", null=False, wire="millis"')],
        [
            Finding(
                place=f"{DAYS}:15",
                finding="column last: wire means nothing in a table that does not parse",
                next_step="Take it out",
            )
        ],
    ),
    Mistake(
        "key not declared",
        [Edit(MEMBERS, 'keys=("member_id",)', 'keys=("memberid",)')],
        [Finding(place=f"{MEMBERS}:8", finding="key memberid is not declared", next_step="The nearest is member_id")],
    ),
    Mistake(
        "dedupe not declared",
        [Edit(NOTES, 'dedupe_by=("note_id",)', 'dedupe_by=("id",)')],
        [
            Finding(
                place=f"{NOTES}:8",
                finding="dedupe_by column id is not declared",
                next_step="Known columns are member_id, note_id, words, written_at",
            )
        ],
    ),
    Mistake(
        "combine not declared",
        [Edit(DAYS, '"shortest": least', '"shortest": least, "longest": greatest')],
        [
            Finding(
                place=f"{DAYS}:8", finding="combined column longest is not declared", next_step="The nearest is last"
            )
        ],
    ),
    Mistake(
        "event_time not declared",
        [Edit(NOTES, 'event_time="written_at"', 'event_time="writen_at"')],
        [
            Finding(
                place=f"{NOTES}:15",
                finding="event_time writen_at is not declared",
                next_step="The nearest is written_at",
            )
        ],
    ),
    Mistake(
        "subject not declared",
        [Edit(NOTES, 'subject="member_id"', 'subject="member"')],
        [Finding(place=f"{NOTES}:16", finding="subject member is not declared", next_step="The nearest is member_id")],
    ),
    Mistake(
        "event_time no time",
        [Edit(NOTES, 'event_time="written_at"', 'event_time="words"')],
        [
            Finding(
                place=f"{NOTES}:15",
                finding="event_time words is of type int",
                next_step="Name a timestamp or date column",
            )
        ],
    ),
    Mistake(
        "no keys",
        [Edit(MEMBERS, 'keys=("member_id",)', "keys=()")],
        [
            Finding(
                place=f"{MEMBERS}:8", finding="there are no keys", next_step="Name the columns that make a row unique"
            )
        ],
    ),
    Mistake(
        "a key named twice",
        [Edit(CITIES, 'keys=("city",)', 'keys=("city", "city")')],
        [Finding(place=f"{CITIES}:8", finding="a column is named twice", next_step="Name each once")],
    ),
    Mistake(
        "key may be null",
        [Edit(MEMBERS, '"bigint", null=False', '"bigint"')],
        [
            Finding(
                place=f"{MEMBERS}:10",
                finding="column member_id: tells rows apart, but may be null",
                next_step="Write null=False: a row without it is refused",
            )
        ],
    ),
    Mistake(
        "dedupe without within",
        [Edit(NOTES, ", within=minutes(10)", "")],
        [
            Finding(
                place=f"{NOTES}:8",
                finding="dedupe_by without within finds no copies",
                next_step="Say how far apart, as in within=hours(1)",
            )
        ],
    ),
    Mistake(
        "within without dedupe",
        [Edit(NOTES, 'dedupe_by=("note_id",), ', "")],
        [
            Finding(
                place=f"{NOTES}:8",
                finding="within without dedupe_by finds no copies",
                next_step="Say which columns are the same in a copy",
            )
        ],
    ),
    Mistake(
        "key and combined",
        [Edit(DAYS, 'keys=("day",)', 'keys=("day", "notes")')],
        [Finding(place=f"{DAYS}:8", finding="notes is a key and combined", next_step="Take it out of one of them")],
    ),
    Mistake(
        "neither key nor combined",
        [Edit(DAYS, '"notes": add, ', "")],
        [
            Finding(
                place=f"{DAYS}:12",
                finding="column notes: is neither a key nor combined",
                next_step="Add it to keys, or to combine with add, least or greatest",
            )
        ],
    ),
    Mistake(
        "adding doubles",
        [Edit(DAYS, 'Column("words", "bigint"', 'Column("words", "double"')],
        [
            Finding(
                place=f"{DAYS}:13",
                finding="column words: add does not go with double",
                next_step=EXACT,
            )
        ],
    ),
    Mistake(
        "adding the longest decimals",
        [Edit(DAYS, 'Column("words", "bigint"', 'Column("words", "decimal(38,0)"')],
        [Finding(place=f"{DAYS}:13", finding="column words: add does not go with decimal(38,0)", next_step=EXACT)],
    ),
    Mistake(
        "parts by a column that is not there",
        [Edit(MEMBERS, '    owner="tests",', '    partition_by="citty",\n    owner="tests",')],
        [
            Finding(
                place=f"{MEMBERS}:17",
                finding="partition_by citty is not declared",
                next_step="The nearest is city",
            )
        ],
    ),
    Mistake(
        "parts by every moment",
        [Edit(NOTES, '    owner="tests",', '    partition_by="written_at",\n    owner="tests",')],
        [
            Finding(
                place=f"{NOTES}:17",
                finding="partition_by written_at is of type timestamp",
                next_step="Write partition_by=day_of('written_at')",
            )
        ],
    ),
    Mistake(
        "parts by the day of a text",
        [
            Edit(MEMBERS, '    owner="tests",', '    partition_by=day_of("city"),\n    owner="tests",'),
            Edit(MEMBERS, "Table, json", "Table, day_of, json"),
        ],
        [
            Finding(
                place=f"{MEMBERS}:17",
                finding="partition_by city is of type string",
                next_step="Name a column of type timestamp or date",
            )
        ],
    ),
    Mistake(
        "parts between which rows would move",
        [
            Edit(DAYS, '    owner="tests",', '    partition_by=day_of("last"),\n    owner="tests",'),
            Edit(DAYS, "correct, greatest", "correct, day_of, greatest"),
        ],
        [
            Finding(
                place=f"{DAYS}:18",
                finding="partition_by last is combined: rows would move between parts",
                next_step="Name one of the keys: day",
            )
        ],
    ),
    Mistake(
        "parts of raw bytes",
        [Edit(LETTERS, ', owner="tests"', ', partition_by="key", owner="tests"')],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="a raw table can be partitioned by the day of arrival only",
                next_step='Write partition_by=day_of("timestamp"), or leave it out',
            )
        ],
    ),
    Mistake(
        "a filter by a column that is not there",
        [Edit(NOTES, '    owner="tests",', '    only="wards > 3",\n    owner="tests",')],
        [
            Finding(
                place=f"{NOTES}:17",
                finding="only='wards > 3': there is no column wards",
                next_step="The nearest is words",
            )
        ],
    ),
    Mistake(
        "a filter that would have to count",
        [Edit(NOTES, '    owner="tests",', '    only="count(note_id) > 3",\n    owner="tests",')],
        [
            Finding(
                place=f"{NOTES}:17",
                finding="only='count(note_id) > 3': count(...) is a function",
                next_step="Compare columns with values; a table above can compute",
            )
        ],
    ),
    Mistake(
        "a filter that is no text",
        [Edit(NOTES, '    owner="tests",', '    only=("words > 3",),\n    owner="tests",')],
        [Finding(place=f"{NOTES}:17", finding="only holds ('words > 3',)", next_step="Give text")],
    ),
    Mistake(
        "a filter of rows that change",
        [Edit(MEMBERS, '    owner="tests",', '    only="dues > 3",\n    owner="tests",')],
        [
            Finding(
                place=f"{MEMBERS}:17",
                finding="rows of a latest table change: one that does not fit any more would have to go",
                next_step="Take it out, and filter in a view over this table",
            )
        ],
    ),
    Mistake(
        "a filter of raw bytes",
        [Edit(LETTERS, ', owner="tests"', ', only="key is null", owner="tests"')],
        [
            Finding(
                place=f"{LETTERS}:5",
                finding="bronze is kept whole: all tables are computed from it again",
                next_step="Take it out: declare it in a table above",
            )
        ],
    ),
    Mistake(
        "a filter beside a transform",
        [Edit(CITIES, '    owner="tests",', '    only="members > 3",\n    owner="tests",')],
        [
            Finding(
                place=f"{CITIES}:14",
                finding="only is for tables that parse events",
                next_step="Take it out, and filter in transform.py",
            )
        ],
    ),
    Mistake(
        "late on view",
        [
            Edit(CITIES, '    owner="tests",', '    late=correct(after=minutes(1)),\n    owner="tests",'),
            Edit(CITIES, "Table, view", "Table, correct, minutes, view"),
        ],
        [
            Finding(
                place=f"{CITIES}:14",
                finding="late is for aggregate and stateful tables",
                next_step="Take it out: this table uses every row, however late",
            )
        ],
    ),
    Mistake(
        "late negative",
        [Edit(DAYS, "hours(1)", "hours(-1)")],
        [Finding(place=f"{DAYS}:9", finding="after is negative", next_step="Give the time a row may be late")],
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistake_in_a_declaration_is_found(mistake: Mistake, tmp_path: Path) -> None:
    """The finding has its place, what is wrong, and the next step; nothing else is found."""
    project = Project(tmp_path / "project")
    mistake.make(project)

    findings = check(project.folder)

    assert findings == mistake.findings
