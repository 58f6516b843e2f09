output "topic_arn" {
  description = "Topic to which all alarms go; subscribe to it what else is to be told."
  value       = aws_sns_topic.alarms.arn
}

output "names" {
  description = "Names of all alarms."
  value = sort(concat(
    [aws_cloudwatch_metric_alarm.status.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.machine : alarm.alarm_name],
    [for alarm in aws_cloudwatch_metric_alarm.platform : alarm.alarm_name],
  ))
}
