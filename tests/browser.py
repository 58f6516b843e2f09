"""Airflow's pages in a real browser, as one of its users sees them."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from deltaworks.settings import Settings

SECONDS_MAX = 120


def is_there() -> bool:
    """Whether this machine has one."""
    return shutil.which("chromedriver") is not None and shutil.which("chromium") is not None


@contextmanager
def without_window(*, size: str = "1400,900") -> Iterator[webdriver.Chrome]:
    """Debian's Chromium without a window; nothing is fetched from elsewhere."""
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={size}"):
        options.add_argument(option)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as browser:
        yield browser


@contextmanager
def logged_in(settings: Settings, user: str = "admin", *, size: str = "1400,900") -> Iterator[webdriver.Chrome]:
    """Such a browser that has logged in."""
    with without_window(size=size) as browser:
        browser.get(settings.airflow_url)
        until(browser, lambda: bool(browser.find_elements(By.NAME, "password")))
        browser.find_element(By.NAME, "username").send_keys(user)
        browser.find_element(By.NAME, "password").send_keys(settings.secret(f"airflow_{user}"))
        browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        until(browser, lambda: not browser.find_elements(By.NAME, "password"))
        yield browser


def text_of(browser: webdriver.Chrome) -> str:
    """All that the page says."""
    return browser.find_element(By.TAG_NAME, "body").text


def until(browser: webdriver.Chrome, true: Callable[[], bool]) -> None:
    """Wait for what a page shows; the error shows what it says instead."""
    try:
        WebDriverWait(browser, SECONDS_MAX, ignored_exceptions=(Exception,)).until(lambda _: true())
    except Exception as error:
        raise AssertionError(f"{browser.current_url} says: {text_of(browser)[:2000]}") from error
