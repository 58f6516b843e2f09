package deltaworks;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * What an analysed plan is made of: asked from Python, each node would be some round trips.
 *
 * Spark's own toJSON says it too, by Scala's reflection, which takes most of a second to start and nothing else needs.
 * Compiled by the Janino that Spark brings, which knows no type parameters of methods and no lambdas.
 */
public final class PlanNodes {
  private final Set words = new LinkedHashSet();
  /** What replaces an expression has its arguments again, in each of many that are nested. */
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap());

  /**
   * Gives each class of its nodes and their expressions, at any depth, once, by its name without the package.
   *
   * A text that is made a date or a time gives its first word too, behind a quote. All are parted by spaces.
   */
  public String of(TreeNode plan) {
    PlanNodes nodes = new PlanNodes();
    nodes.add(plan);
    return String.join(" ", nodes.words);
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
    String name = node.getClass().getName();
    words.add(name.substring(name.lastIndexOf('.') + 1));
    scala.collection.Iterator children = node.children().iterator();
    Object first = children.hasNext() ? children.next() : null;
    if (first instanceof Literal && givesTime(node)) {
      words.add("'" + String.valueOf(((Literal) first).value()).trim().split("\\s+")[0].toLowerCase());
    }
    addAll(node.productIterator());
  }

  private boolean givesTime(TreeNode node) {
    if (node instanceof Cast) {
      String type = ((Cast) node).dataType().simpleString();
      return type.startsWith("date") || type.startsWith("timestamp");
    }
    return node.getClass().getSimpleName().startsWith("ParseTo");
  }
}
