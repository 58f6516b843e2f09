"""The folder that Airflow loads plugins from (`plugins_folder`): each file is one."""
