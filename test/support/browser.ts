import { spawnSync } from 'node:child_process'
import { type Browser, chromium } from 'playwright-core'
import { afterAll, describe } from 'vitest'

// Without the frame of a window around each page, which is never seen, the first takes a third less processor time than the others.
const names = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome']

// Each test file evaluates this module for itself; the process, with its one browser, is what they share.
type Shared = { readonly command: string | undefined; browser?: Promise<Browser> }
const place = globalThis as { daybookTestBrowser?: Shared }
place.daybookTestBrowser ??= { command: names.find((name) => spawnSync(name, ['--version']).status === 0) }
const shared = place.daybookTestBrowser

/** `describe` for tests that need a browser: skipped, with a hint, where there is none. */
export const describeWithBrowser = describe.skipIf(shared.command === undefined)

/** The browser of this process, without a window; what a test file has opened in it is closed after the file. */
export async function startBrowser(): Promise<Browser> {
  const running = await shared.browser
  if (!running?.isConnected()) shared.browser = launch(shared.command!)
  return shared.browser!
}

/** It ends with this process. */
function launch(command: string): Promise<Browser> {
  // A graphics card in software costs more than it gives.
  const args = ['--disable-gpu', '--disable-software-rasterizer']
  // A sandboxed frame has a process of its own, so that one that hangs stops nothing else: other browsers do so unasked.
  args.push('--site-per-process')
  // Chromium refuses to run its sandbox as root, as which containers run tests.
  if (process.getuid?.() === 0) args.push('--no-sandbox')
  const executablePath = spawnSync('which', [command]).stdout.toString().trim()
  return chromium.launch({ executablePath, args })
}

afterAll(async () => {
  const browser = await shared.browser
  await Promise.all((browser?.contexts() ?? []).map((context) => context.close()))
})

const installing = 'Debian: apt-get install chromium-headless-shell; macOS: brew install chromium'
if (shared.command === undefined)
  process.stderr.write(`chromium is not installed: the tests that need a browser are skipped (${installing})\n`)
