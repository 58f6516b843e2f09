# What the machine does when it starts, as cloud-init reads it. JSON is YAML, so nothing has to be indented.
#
# The first start installs packages and the programs of files/. From then on systemd does the rest at every start, in
# this order: mount the data volume, fetch the secrets into memory, Docker, the release.

locals {
  data_path    = "/srv/deltaworks"
  secrets_path = "/run/deltaworks/secrets" # in memory: gone when the machine stops

  host_env = <<-EOT
    NAME='${var.name}'
    REGION='${local.region}'
    VOLUME_ID='${aws_ebs_volume.data.id}'
    DEVICES='/dev/disk/by-id'
    DATA='${local.data_path}'
    SECRETS='${local.secrets_path}'
    SECRET_NAMES='${join(" ", sort(keys(var.secret_arns)))}'
    OWNER='10001'
    BUCKET='${var.bucket}'
    RELEASE_PARAMETER='/${var.name}/release'
    NAMESPACE='${var.namespace}'
    PLUGINS='/usr/local/lib/docker/cli-plugins'
    PROFILES='${join(",", var.compose_profiles)}'
    AIRFLOW_PORT='${var.airflow_port}'
  EOT

  programs = { for name in fileset("${path.module}/files", "*") : "/usr/local/bin/${name}" => file("${path.module}/files/${name}") }

  units = {
    "deltaworks-volume.service"  = <<-EOT
      [Unit]
      Description=Data volume of Deltaworks
      Before=docker.service
      [Service]
      Type=oneshot
      RemainAfterExit=yes
      ExecStart=/usr/local/bin/deltaworks-volume
      TimeoutStartSec=20min
      [Install]
      WantedBy=multi-user.target
    EOT
    "deltaworks-secrets.service" = <<-EOT
      [Unit]
      Description=Secrets of Deltaworks
      Wants=network-online.target
      After=network-online.target
      Before=docker.service
      StartLimitIntervalSec=0
      [Service]
      Type=oneshot
      RemainAfterExit=yes
      ExecStart=/usr/local/bin/deltaworks-secrets
      Restart=on-failure
      RestartSec=30
      [Install]
      WantedBy=multi-user.target
    EOT
    # containers that start with Docker need the volume and their secrets
    "docker.service.d/deltaworks.conf" = <<-EOT
      [Unit]
      Requires=deltaworks-volume.service deltaworks-secrets.service
      After=deltaworks-volume.service deltaworks-secrets.service
    EOT
    "deltaworks.service"               = <<-EOT
      [Unit]
      Description=The wanted release of Deltaworks
      Wants=docker.service
      After=docker.service
      StartLimitIntervalSec=0
      [Service]
      Type=oneshot
      RemainAfterExit=yes
      ExecStart=/usr/local/bin/deltaworks-release
      TimeoutStartSec=60min
      Restart=on-failure
      RestartSec=60
      [Install]
      WantedBy=multi-user.target
    EOT
    "deltaworks-metrics.service"       = <<-EOT
      [Unit]
      Description=State of Deltaworks as metrics
      [Service]
      Type=oneshot
      ExecStart=/usr/local/bin/deltaworks-metrics
      TimeoutStartSec=58
    EOT
    "deltaworks-metrics.timer"         = <<-EOT
      [Unit]
      Description=State of Deltaworks as metrics, once a minute
      [Timer]
      OnCalendar=minutely
      AccuracySec=1
      [Install]
      WantedBy=timers.target
    EOT
  }

  agent = {
    agent = { metrics_collection_interval = 60, run_as_user = "root", omit_hostname = true }
    metrics = {
      namespace = var.namespace
      metrics_collected = {
        mem  = { measurement = ["mem_used_percent"] }
        disk = { measurement = ["disk_used_percent"], resources = ["/", local.data_path], drop_device = true }
      }
    }
  }

  user_data = "#cloud-config\n${jsonencode({
    write_files = concat(
      [
        { path = "/etc/deltaworks/host.env", permissions = "0644", content = local.host_env },
        { path = "/etc/docker/daemon.json", permissions = "0644", content = jsonencode({
          data-root  = "${local.data_path}/docker"
          log-driver = "json-file"
          log-opts   = { max-size = "50m", max-file = "4" } # logs do not fill the volume
        }) },
        { path = "/opt/aws/amazon-cloudwatch-agent/etc/deltaworks.json", permissions = "0644", content = jsonencode(local.agent) },
      ],
      [for path, text in local.programs : { path = path, permissions = "0755", content = text }],
      [for name, text in local.units : { path = "/etc/systemd/system/${name}", permissions = "0644", content = text }],
    )
    runcmd = [
      ["sh", "-c", "until dnf install -y docker jq xfsprogs amazon-cloudwatch-agent; do sleep 15; done"],
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "deltaworks-volume.service", "deltaworks-secrets.service"],
      ["systemctl", "enable", "--now", "docker.service"],
      ["systemctl", "enable", "--now", "deltaworks-metrics.timer"],
      ["/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl", "-a", "fetch-config", "-m", "ec2", "-s", "-c", "file:/opt/aws/amazon-cloudwatch-agent/etc/deltaworks.json"],
      ["systemctl", "enable", "--now", "--no-block", "deltaworks.service"],
    ]
  })}"
}
