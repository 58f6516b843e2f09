package deltaworks;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.util.Properties;

import org.apache.spark.Partition;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.rdd.RDD;

/**
 * Computes a partition of Arrow batches into a file, on the calling thread, as a task that no scheduler knows.
 *
 * From Python each of these calls would be a round trip, some thirty for one batch. Compiled by the Janino that Spark
 * brings, which knows no type parameters of methods and no lambdas.
 */
public final class DirectTask {
  private final SparkEnv env = SparkEnv.get();
  private final scala.collection.immutable.Map nothing = scala.collection.immutable.Map$.MODULE$.empty();

  /**
   * Gives how many bytes were written; it ends after the batch with which they are more than bytesMax.
   *
   * Each batch is behind its length, as Spark writes them to Python. Cleans up as Spark's executor does after a task.
   */
  public long run(RDD rdd, Partition partition, Properties settings, long attempt, String file, long bytesMax)
      throws Exception {
    TaskMemoryManager memory = new TaskMemoryManager(env.memoryManager(), attempt);
    TaskContextImpl context = new TaskContextImpl(
        0, 0, 0, attempt, 0, 1, memory, settings, env.metricsSystem(), new TaskMetrics(), 1, nothing);
    env.blockManager().registerTask(attempt);
    try {
      TaskContext$.MODULE$.setTaskContext(context);
      DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file)));
      long written = 0;
      try {
        scala.collection.Iterator batches = rdd.compute(partition, context);
        while (written <= bytesMax && batches.hasNext()) {
          byte[] batch = (byte[]) batches.next();
          out.writeInt(batch.length);
          out.write(batch);
          written += 4 + batch.length;
        }
      } finally {
        out.close();
      }
      return written;
    } finally {
      try {
        context.markTaskCompleted(scala.None$.MODULE$);
      } finally {
        TaskContext$.MODULE$.unset();
        env.blockManager().releaseAllLocksForTask(attempt);
        memory.cleanUpAllAllocatedMemory();
      }
    }
  }
}
