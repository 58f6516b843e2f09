package deltaworks;

import java.util.Collections;

import org.apache.spark.Partition;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;

/**
 * A frame over an RDD of one partition, without rows, or with what an array of one element holds: an Arrow batch.
 *
 * From Python each of these calls would be a round trip, some twenty for one input. Compiled by the Janino that Spark
 * brings, which knows no type parameters of methods and no lambdas.
 */
public final class PlanInput {
  private final Object[] cell = new Object[1];
  private Dataset frame;
  private LogicalRDD leaf;

  /** Gives one, while this one only makes others; `empty` is an Arrow batch without rows, `schema` its types as JSON. */
  public PlanInput of(SparkSession session, byte[] empty, String schema) {
    PlanInput made = new PlanInput();
    scala.collection.Iterator one = scala.jdk.javaapi.CollectionConverters.asScala(
        Collections.singletonList(empty).iterator());
    made.frame = ArrowConverters$.MODULE$.toDataFrame(
        one, (StructType) session.parseDataType(schema), session, "UTC", false, false);
    made.leaf = (LogicalRDD) made.frame.queryExecution().analyzed();
    return made;
  }

  /** Puts the array in the place of the rows, where there is just one partition; gives how many there are. */
  public int hold() {
    Partition[] partitions = leaf.rdd().partitions();
    if (partitions.length == 1) {
      ((ParallelCollectionPartition) partitions[0]).values_$eq(
          scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(cell));
    }
    return partitions.length;
  }

  /** The frame. */
  public Dataset frame() {
    return frame;
  }

  /** The array. */
  public Object[] cell() {
    return cell;
  }

  /** The number of the RDD. */
  public int number() {
    return leaf.rdd().id();
  }
}
