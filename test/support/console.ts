import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Browser, BrowserContextOptions, Cookie, Frame, Page } from 'playwright-core'
import { expect } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { type Api, startApi } from './api.ts'
import { startBrowser } from './browser.ts'
import { layoutFaults } from './layout.ts'
import { openPagePool } from './page-pool.ts'
import { administrator } from './prepare.ts'
import { longestWaitMs } from './wait.ts'

export type Visit = {
  readonly page: Page
  /** What the browser's console, the policy and the page complained of, and every request to another host. */
  readonly wrong: string[]
}

export type Console = {
  readonly api: Api
  readonly address: string
  readonly browser: Browser
  /** Opens an address of the console as the administrator, as another user, or signed out (null). */
  visit(
    path: string,
    options?: BrowserContextOptions & { readonly as?: { email: string; password: string } | null },
  ): Promise<Visit>
}

const root = join(import.meta.dirname, '../..')

/** Keeps what a page sends to change something from going on, until the answer is called. */
export async function holdChanges(page: Page): Promise<() => void> {
  const held = Promise.withResolvers<void>()
  await page.route(
    () => true,
    async (route) => {
      if (route.request().method() === 'PATCH') await held.promise
      await route.continue()
    },
  )
  return held.resolve
}

/** A web process with the console, and a browser; both are closed after the file. */
export async function startConsole(env: Record<string, string> = {}): Promise<Console> {
  await buildConsole()
  const port = await freePort()
  const address = `http://localhost:${port}`
  const own = { SOCKET_ENABLED: 'true', PASSKEY_ORIGIN: address, ...env }
  const [api, browser] = await Promise.all([startApi(own), startBrowser()])
  await api.app.listen({ host: '127.0.0.1', port })
  const sessions = new Map<string, Cookie[]>()
  const pages = openPagePool(browser, `${address}/health`)
  return {
    api,
    address,
    browser,
    async visit(path, { as = administrator, ...options } = {}) {
      const page = await pages.take(as?.email, { viewport: { width: 1280, height: 800 }, ...options })
      const context = page.context()
      if (as !== null) {
        // One session for all visits of a user: attempts to sign in are counted.
        let cookies = sessions.get(as.email)
        if (cookies === undefined) {
          const data = { ...as, authMode: 'cookie' }
          const answer = await context.request.post(`${address}/auth/login`, { data, headers: { origin: address } })
          if (!answer.ok()) throw new Error(`the sign-in failed: ${await answer.text()}`)
          cookies = await context.cookies()
          sessions.set(as.email, cookies)
        }
        await context.addCookies(cookies)
      }
      // Less than a test has, so that a failure names its step.
      page.setDefaultTimeout(longestWaitMs)
      const wrong: string[] = []
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text())
      })
      page.on('pageerror', (error) => wrong.push(error.message))
      page.on('dialog', (dialog) => {
        wrong.push(`a dialog: ${dialog.message()}`)
        void dialog.dismiss()
      })
      page.on('request', (request) => {
        if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) wrong.push(request.url())
      })
      await page.goto(`${address}/console${path}`)
      return { page, wrong }
    },
  }
}

/** As `npm start` does; once for all test files that run at the same time. */
export async function buildConsole(): Promise<void> {
  await promisify(execFile)(process.execPath, [join(root, 'console/build.ts'), '--if-stale'])
}

const axeSource = readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

type Violation = { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }

/** Expects no barrier to any user, by the rules of axe, of a page or of one frame in it. */
export async function expectAccessible(page: Page | Frame): Promise<void> {
  // The page around a frame has the heading.
  const rules = 'mainFrame' in page ? {} : { 'page-has-heading-one': { enabled: false } }
  // Half a megabyte, which a document needs once.
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(`${await axeSource}; undefined`)
  const { violations } = (await page.evaluate(
    `axe.run(document, { resultTypes: ['violations'], rules: ${JSON.stringify(rules)} })`,
  )) as { violations: Violation[] }
  const found = violations.map(({ id, help, nodes }) => `${id}: ${help}\n${nodes.map(({ html }) => html).join('\n')}`)
  expect(found).toEqual([])
}

const looks = [320, 768, 1440].flatMap((width) =>
  (['light', 'dark'] as const).map((colorScheme) => ({ width, colorScheme })),
)

/**
 * Expects that a page fits windows of three widths in both themes: nothing is wider than the window, cut off or covered, and axe
 * finds nothing. What scrolls sideways by design is inside an element with `overflow: auto`. The window is as it was afterwards.
 * For people to look at, a page with a name is kept in pictures where CONSOLE_SHOTS names a folder.
 */
export async function expectFits(page: Page, name?: string): Promise<void> {
  const shots = process.env.CONSOLE_SHOTS
  const before = page.viewportSize()!
  for (const { width, colorScheme } of looks) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await page.setViewportSize({ width, height: 800 })
    // What lies over the page is placed anew a moment after the window has changed.
    const measured = async () => ({
      width,
      colorScheme,
      wide: await page.evaluate('document.documentElement.scrollWidth'),
    })
    await expect.poll(measured).toSatisfy(({ wide }) => Number(wide) <= width)
    expect({ width, colorScheme, faults: await layoutFaults(page) }).toEqual({ width, colorScheme, faults: [] })
    if (name !== undefined && shots !== undefined)
      await page.screenshot({ path: join(shots, `${name}-${width}-${colorScheme}.png`) })
    // Contrast is a matter of the theme, names and roles of the narrow and the wide form.
    if (`${width} ${colorScheme}` === '320 dark' || `${width} ${colorScheme}` === '1440 light')
      await expectAccessible(page)
  }
  await page.setViewportSize(before)
}
