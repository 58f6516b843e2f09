"""Airflow's pages in a real browser: who has the generated password sees the project's DAGs at work."""

import shutil
from collections.abc import Callable, Iterator

import psycopg
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from deltaworks.settings import ROOT, Settings
from tests.running_stack import running_stack

SECONDS_MAX = 120


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Give Debian's Chromium without a window; nothing is fetched."""
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip('no browser here: "apt-get install chromium chromium-driver"')
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,900"):
        options.add_argument(option)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as started:
        yield started


@pytest.fixture(scope="module")
def airflow(browser: webdriver.Chrome) -> Iterator[Settings]:
    """Give the settings of a stack whose Airflow has the checkout's DAGs, with the browser logged in."""
    with running_stack(parts=("control", "airflow"), project=ROOT) as settings:
        browser.get(settings.airflow_url)
        _until(browser, lambda: bool(browser.find_elements(By.NAME, "password")))
        browser.find_element(By.NAME, "username").send_keys("admin")
        browser.find_element(By.NAME, "password").send_keys(settings.secret("airflow_admin"))
        browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        _until(browser, lambda: not browser.find_elements(By.NAME, "password"))
        yield settings


def test_dags_of_the_project_are_listed(airflow: Settings, browser: webdriver.Chrome) -> None:
    """Two apps make three DAGs each, and the report written by hand is there; nothing failed to import."""
    wanted = {f"{kind}__{app}" for kind in ("stream", "maintain", "vacuum") for app in ("shop", "web")} | {
        "daily_report"
    }

    browser.get(f"{airflow.airflow_url}/dags")
    _until(browser, lambda: wanted <= {*_text(browser).split()})

    assert "Import Error" not in _text(browser)


def test_stream_waits_without_a_worker(airflow: Settings, browser: webdriver.Chrome) -> None:
    """The supervising task of an app that nobody wants running is deferred, not failed, and so the page says."""
    browser.get(f"{airflow.airflow_url}/dags/stream__web/tasks/supervise/task_instances")

    _until(browser, lambda: _states(airflow) == {"deferred"})  # the page has the word in other places too
    _until(browser, lambda: "deferred" in _text(browser).lower())


def _states(airflow: Settings) -> set[str]:
    """Of every instance of the task, by Airflow's own books."""
    asked = "select state from task_instance where dag_id = 'stream__web' and task_id = 'supervise'"
    with psycopg.connect(airflow.dsn("airflow")) as connection:
        return {str(state) for (state,) in connection.execute(asked)}


def _text(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def _until(browser: webdriver.Chrome, true: Callable[[], bool]) -> None:
    """Wait for what a page shows; the error shows what it says instead."""
    try:
        WebDriverWait(browser, SECONDS_MAX, ignored_exceptions=(Exception,)).until(lambda _: true())
    except Exception as error:
        raise AssertionError(f"{browser.current_url} says: {_text(browser)[:2000]}") from error
