# The secrets of the platform: those that the local stack makes as files, by the same names. A test holds the two equal.

locals {
  secrets = {
    source_admin     = { description = "Administrator of the source database" }
    shop             = { description = "The shop's role in the source database" }
    debezium         = { description = "Role that captures changes of the source database" }
    control_admin    = { description = "Administrator of the control database" }
    deltaworks       = { description = "Role of drivers and command line in the control store" }
    airflow          = { description = "Airflow's role in its database" }
    serving          = { description = "Role that writes the served copies" }
    reader           = { description = "Role that reads the served copies" }
    airflow_admin    = { description = "Airflow's account admin" }
    airflow_operator = { description = "Airflow's account operator" }
    airflow_viewer   = { description = "Airflow's account viewer" }
    airflow_jwt      = { description = "Key by which Airflow signs tokens" }
    airflow_session  = { description = "Key by which Airflow signs sessions" }
    airflow_fernet   = { description = "Key by which Airflow encrypts connections", form = "fernet" }
  }
}
