package deltaworks;

import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;

/**
 * What plans are made of: asked from Python, each node would be some round trips.
 *
 * Spark's own toJSON says some of it too, by Scala's reflection, which takes most of a second to start and nothing
 * else needs. Compiled by the Janino that Spark brings, which knows no type parameters of methods and no lambdas.
 */
public final class PlanNodes {
  private static final long DAY_MILLIS = 24L * 3600 * 1000;

  private final Set words = new LinkedHashSet();
  /** What replaces an expression has its arguments again, in each of many that are nested. */
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap());

  /**
   * Gives each class of its nodes and their expressions, at any depth, once, by its name without the package.
   *
   * A text that is made a date or a time gives its first word too, behind a quote; a date or a time of these days
   * gives "'lately", as the parser puts it in the place of date'today' and timestamp'now'. All are parted by spaces.
   */
  public String of(TreeNode plan) {
    PlanNodes nodes = new PlanNodes();
    nodes.add(plan);
    return String.join(" ", nodes.words);
  }

  /** Gives the class of a node, by its name without what it is in. */
  public String kind(Object node) {
    return node.getClass().getSimpleName();
  }

  /** Gives Spark's number of a column. */
  public long number(NamedExpression column) {
    return column.exprId().id();
  }

  /**
   * Gives the columns of an analysed plan of projections that only pick and rename those of its one leaf.
   *
   * First the number of the RDD that the leaf reads, then for each column its place among the leaf's.
   */
  public String picked(LogicalPlan plan) {
    StringBuilder told = new StringBuilder();
    Map places = places(plan, told);
    scala.collection.Iterator columns = plan.output().iterator();
    while (columns.hasNext()) {
      told.append(' ').append(places.get(numberOf(columns.next())));
    }
    return told.toString();
  }

  private Map places(LogicalPlan plan, StringBuilder leaf) {
    Map places = new HashMap();
    if (plan instanceof Project) {
      Map below = places(((Project) plan).child(), leaf);
      scala.collection.Iterator columns = ((Project) plan).projectList().iterator();
      while (columns.hasNext()) {
        Object column = columns.next();
        Object source = column instanceof Alias ? ((Alias) column).child() : column;
        places.put(numberOf(column), below.get(numberOf(source)));
      }
    } else {
      leaf.append(((LogicalRDD) plan).rdd().id());
      scala.collection.Iterator columns = plan.output().iterator();
      while (columns.hasNext()) {
        places.put(numberOf(columns.next()), Integer.valueOf(places.size()));
      }
    }
    return places;
  }

  private Long numberOf(Object column) {
    return Long.valueOf(((NamedExpression) column).exprId().id());
  }

  /** Gives for each node of a plan to execute, those below it first: its kind, its RDD or -1, how many subqueries. */
  public String executed(SparkPlan plan) {
    StringBuilder told = new StringBuilder();
    tell(plan, told);
    return told.toString();
  }

  private void tell(SparkPlan plan, StringBuilder told) {
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      tell((SparkPlan) children.next(), told);
    }
    int reads = plan instanceof RDDScanExec ? ((RDDScanExec) plan).rdd().id() : -1;
    told.append(kind(plan)).append(' ').append(reads).append(' ').append(plan.subqueries().size()).append('\n');
  }

  /** Gives a plan without exchanges, its unions of one partition, as all that it reads are. */
  public SparkPlan onePartition(SparkPlan plan) {
    Object[] children = new Object[plan.children().size()];
    for (int at = 0; at < children.length; at++) {
      children[at] = onePartition((SparkPlan) plan.children().apply(at));
    }
    if (plan instanceof ShuffleExchangeExec) {
      return (SparkPlan) children[0];
    }
    SparkPlan made = (SparkPlan) plan.withNewChildren(
        scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(children));
    return plan instanceof UnionExec ? new CoalesceExec(1, made) : made;
  }

  private void add(Object field) {
    if (field instanceof TreeNode) {
      if (seen.add(field)) {
        addNode((TreeNode) field);
      }
    } else if (field instanceof scala.collection.Iterable) {
      addAll(((scala.collection.Iterable) field).iterator());
    } else if (field instanceof scala.Option || field instanceof scala.Tuple2 || field instanceof scala.Tuple3) {
      addAll(((scala.Product) field).productIterator());
    }
  }

  private void addAll(scala.collection.Iterator fields) {
    while (fields.hasNext()) {
      add(fields.next());
    }
  }

  private void addNode(TreeNode node) {
    words.add(kind(node));
    scala.collection.Iterator children = node.children().iterator();
    Object first = children.hasNext() ? children.next() : null;
    if (first instanceof Expression && givesTime(node)) {
      words.add("'" + textOf((Expression) first).trim().split("\\s+")[0].toLowerCase());
    }
    if (node instanceof Literal && isOfTheseDays((Literal) node)) {
      words.add("'lately");
    }
    addAll(node.productIterator());
  }

  /** Gives the text of what rows do not change; empty where it is none, or raises. */
  private String textOf(Expression expression) {
    if (!expression.foldable()) {
      return "";
    }
    try {
      return String.valueOf(expression.eval(null));
    } catch (Exception error) {
      return "";
    }
  }

  private boolean isOfTheseDays(Literal literal) {
    String type = literal.dataType().simpleString();
    long at;
    if (type.equals("date") && literal.value() instanceof Integer) {
      at = ((Integer) literal.value()).intValue() * DAY_MILLIS;
    } else if (type.startsWith("timestamp") && literal.value() instanceof Long) {
      at = ((Long) literal.value()).longValue() / 1000;
    } else {
      return false;
    }
    return Math.abs(at - System.currentTimeMillis()) < 3 * DAY_MILLIS; // the next day, in any time zone
  }

  private boolean givesTime(TreeNode node) {
    if (node instanceof Cast) {
      String type = ((Cast) node).dataType().simpleString();
      return type.startsWith("date") || type.startsWith("timestamp");
    }
    return node.getClass().getSimpleName().startsWith("ParseTo");
  }
}
