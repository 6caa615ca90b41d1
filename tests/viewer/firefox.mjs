// Opens a page in Firefox over WebDriver BiDi, goes through some steps by keys, and prints what it saw.
// node firefox.mjs PUPPETEER FIREFOX ADDRESS…   Each address is opened in the same window, one after another.
const [puppeteerPath, executablePath, ...addresses] = process.argv.slice(2);
const { default: puppeteer } = await import(puppeteerPath);
const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true });
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1440, height: 844 });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (told) => told.type() === "error" && errors.push(told.text()));
  page.on("dialog", (dialog) => errors.push(`dialog ${dialog.message()}`));
  const seen = [];
  for (const address of addresses) {
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForSelector("[role=listbox] [role=option]", { timeout: 30_000 });
    await page.keyboard.press("Home");
    await page.waitForSelector("[role=slider][aria-valuenow='1']", { timeout: 30_000 });
    await page.keyboard.press("j");
    await page.waitForSelector("[role=slider][aria-valuenow='2']", { timeout: 30_000 });
    await page.keyboard.press("End");
    await page.waitForSelector("[role=option][aria-selected=true]", { timeout: 30_000 });
    seen.push(await page.evaluate(() => ({
      steps: [...document.querySelectorAll("[role=listbox] [role=option]")].map((each) => each.textContent),
      count: document.querySelector("[role=slider]").getAttribute("aria-valuemax"),
    })));
  }
  console.log(JSON.stringify({ version: await browser.version(), errors, seen }));
} finally {
  await browser.close();
}
