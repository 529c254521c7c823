"""A browser for tests of pages."""
import shutil


def browser():
    """Returns a headless Chromium and an empty text, or None and why it cannot be started."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        return None, "no chromium and chromedriver on this machine"
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        return webdriver.Chrome(options=options, service=Service(driver)), ""
    except WebDriverException as error:
        return None, f"chromium does not start: {str(error).splitlines()[0]}"
