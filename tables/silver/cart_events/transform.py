"""Cart commands to events: each is judged by what the cart holds when it comes, in order of time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PIECES_MAX = 2**31 - 1  # what the column holds; a sum beyond it would raise, and hold up all carts


def transform(cart_commands: DataFrame) -> DataFrame:
    """Walk through the commands of each cart; one that nobody touched for more than a day begins anew."""
    asked = F.min(F.struct("command", "product_id", "quantity", "user_id")).alias("asked")
    # a copy of a command may come after silver has forgotten the first one
    once = cart_commands.groupBy("cart_id", "given_at", "command_id").agg(asked)
    command = F.struct("given_at", "command_id", "asked.*")
    life = F.session_window("given_at", "1 day").alias("life")
    carts = once.groupBy("cart_id", life).agg(F.array_sort(F.collect_list(command)).alias("commands"))
    nothing = "cast(map() as map<bigint,int>)"
    judged = (
        "array<struct<given_at:timestamp,command_id:string,user_id:bigint,command:string,product_id:bigint,quantity:int,"
        "refused:string>>"
    )
    begin = F.expr(f"struct({nothing} as lines, false as closed, cast(array() as {judged}) as events)")
    events = F.aggregate("commands", begin, _take, lambda cart: cart["events"])
    walked = carts.select("cart_id", F.col("life.start").alias("since"), F.explode(events).alias("e"))
    return walked.select("cart_id", "since", "e.*")


def _take(cart: Column, command: Column) -> Column:
    """The cart after one more command, and what became of it."""
    product, given = command["product_id"], command["quantity"]
    held = F.element_at(cart["lines"], product)
    adds, removes = command["command"] == "add", command["command"] == "remove"
    changes, checks_out = command["command"] == "change_quantity", command["command"] == "check_out"
    added = F.coalesce(held, F.lit(0)).cast("bigint") + given
    refused = (
        F.when(cart["closed"], "the cart is checked out")
        .when(~(adds | removes | changes | checks_out), "there is no such command")
        .when(checks_out & (F.size(cart["lines"]) == 0), "the cart is empty")
        .when(~checks_out & product.isNull(), "no product is named")
        .when((adds | changes) & ~F.coalesce(given > 0, F.lit(False)), "the quantity is not above zero")
        .when((removes | changes) & held.isNull(), "the product is not in the cart")
        .when(adds & (added > PIECES_MAX), "so many pieces cannot be counted")
    )
    after = F.when(adds, added).when(removes, F.lit(0)).when(changes, given)
    done = refused.isNull()
    others = F.map_filter(cart["lines"], lambda key, _: key != product)
    put = F.when(removes, others).otherwise(F.map_concat(others, F.create_map(product, after.cast("int"))))
    event = F.struct(
        *(command[name].alias(name) for name in ("given_at", "command_id", "user_id", "command", "product_id")),
        F.when(done, after).cast("int").alias("quantity"),
        refused.alias("refused"),
    )
    return F.struct(
        F.when(done & ~checks_out, put).otherwise(cart["lines"]).alias("lines"),
        (cart["closed"] | (done & checks_out)).alias("closed"),
        F.array_append(cart["events"], event).alias("events"),
    )
