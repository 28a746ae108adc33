import { execFile } from 'node:child_process'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { type Browser, chromium, type Page } from 'playwright-core'
import { chromiumHint, findChromium } from '../scripts/chromium.ts'
import { type Prepared, startDaybook } from './daybook.ts'
import type { Figure } from './figures.ts'
import { median } from './rounds.ts'

const root = resolve(import.meta.dirname, '..')
const table = 'product_1m'

/**
 * P-CONSOLE: how soon the console shows its collections and a table of 1,000,000 rows, and how long its frames take while a user
 * scrolls. In a browser without a window, which draws by the processor; without a browser there are no figures.
 */
export async function measureConsole(prepared: Prepared): Promise<readonly Figure[]> {
  await using cleanup = new AsyncDisposableStack()
  const browser = await startBrowser(cleanup)
  if (browser === undefined) return []
  await promisify(execFile)(process.execPath, [join(root, 'console/build.ts'), '--if-stale'])
  // Over plain http production keeps no session.
  const { url } = await startDaybook(prepared, { NODE_ENV: 'development', SOCKET_ENABLED: 'true' }, cleanup)
  const opened: Opened[] = []
  for (let time = 0; time < 5; time += 1) opened.push(await openOnce(browser, url, prepared))
  const frames = await scroll(browser, url, prepared, 10_000)
  const figure = (title: string, daybook: number): Figure => ({ id: 'P-CONSOLE', title, unit: 'ms', daybook })
  return [
    figure('from an address to the list of collections', median(opened.map(({ collections }) => collections))),
    figure('from a click to rows of 1,000,000', median(opened.map(({ rows }) => rows))),
    figure('frame while scrolling, p95', at(frames, 0.95)),
    figure('frame while scrolling, longest', at(frames, 1)),
  ]
}

async function startBrowser(cleanup: AsyncDisposableStack): Promise<Browser | undefined> {
  const executablePath = findChromium()
  if (executablePath === undefined) {
    process.stderr.write(`P-CONSOLE is left out: there is no Chromium (${chromiumHint})\n`)
    return undefined
  }
  // Chromium refuses to run its sandbox as root.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  const browser = await chromium.launch({ executablePath, args })
  cleanup.defer(() => browser.close())
  return browser
}

/** A browser that has never seen the console, with a session. */
async function visit(browser: Browser, url: string, { accounts, password }: Prepared): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  const data = { email: accounts.admin.email, password, authMode: 'cookie' }
  const answer = await context.request.post(`${url}/auth/login`, { data, headers: { origin: url } })
  if (!answer.ok()) throw new Error(`Signing in was answered with ${answer.status()}: ${await answer.text()}`)
  return context.newPage()
}

type Opened = { readonly collections: number; readonly rows: number }

async function openOnce(browser: Browser, url: string, prepared: Prepared): Promise<Opened> {
  const page = await visit(browser, url, prepared)
  const link = page.locator(`main a[href="/console/data/${table}"]`)
  const begun = performance.now()
  await page.goto(`${url}/console/data`)
  await link.waitFor()
  const collections = performance.now() - begun
  const clicked = performance.now()
  await link.click()
  await firstRow(page).waitFor()
  const rows = performance.now() - clicked
  await page.context().close()
  return { collections, rows }
}

const firstRow = (page: Page) => page.locator('[role=row][aria-selected]').first()

/** Milliseconds between frames while the wheel turns: a screen every 100 ms, as fast as a user leafs. */
async function scroll(browser: Browser, url: string, prepared: Prepared, ms: number): Promise<readonly number[]> {
  const page = await visit(browser, url, prepared)
  await page.goto(`${url}/console/data/${table}`)
  await firstRow(page).waitFor()
  await page.getByRole('grid').hover()
  const frames = page.evaluate(framesIn(ms))
  for (const until = performance.now() + ms; performance.now() < until; ) {
    await page.mouse.wheel(0, 400)
    await page.waitForTimeout(50)
  }
  const times = (await frames) as readonly number[]
  await page.context().close()
  return times.slice(1).map((time, place) => time - times[place]!)
}

/** Runs in the page: when each frame was drawn. */
const framesIn = (ms: number) => `new Promise((done) => {
  const times = []
  const next = (time) => {
    times.push(time)
    if (time - times[0] < ${ms}) requestAnimationFrame(next)
    else done(times)
  }
  requestAnimationFrame(next)
})`

const at = (values: readonly number[], share: number): number =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))]!
