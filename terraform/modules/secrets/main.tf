# Secrets: names, and generated values.
#
# A value is made of random UUIDs while Terraform applies, and handed on by a write-only argument. It stands in no
# state, plan or output. It is made anew only when its version is raised. One that is not generated is put by hand:
# aws secretsmanager put-secret-value. Who may read them is decided by the caller, by their ARNs.

locals {
  generated = { for name, secret in var.secrets : name => secret if secret.generated }
}

resource "aws_secretsmanager_secret" "this" {
  for_each = var.secrets

  name                    = "${var.name}/${each.key}"
  description             = each.value.description
  recovery_window_in_days = var.recovery_days
}

resource "aws_secretsmanager_secret_version" "this" {
  for_each = local.generated

  secret_id = aws_secretsmanager_secret.this[each.key].id
  # 32 bytes in base64 as addresses may have it, as the local stack makes them too; a Fernet key keeps the sign at the end
  secret_string_wo = trimsuffix(
    replace(replace(base64sha256("${uuid()}${uuid()}${uuid()}"), "+", "-"), "/", "_"),
    each.value.form == "fernet" ? "" : "=",
  )
  secret_string_wo_version = each.value.version
}
