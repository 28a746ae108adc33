import { spawnSync } from 'node:child_process'
import { type Browser, chromium } from 'playwright-core'
import { afterAll, describe } from 'vitest'

const names = ['chromium', 'chromium-browser', 'google-chrome']
const command = names.find((name) => spawnSync(name, ['--version']).status === 0)

/** `describe` for tests that need a browser: skipped, with a hint, where there is none. */
export const describeWithBrowser = describe.skipIf(command === undefined)

/** Starts a browser without a window, closed after the test file. */
export async function startBrowser(): Promise<Browser> {
  // Chromium refuses to run its sandbox as root, as which containers run tests.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : []
  const executablePath = spawnSync('which', [command!]).stdout.toString().trim()
  const browser = await chromium.launch({ executablePath, args })
  afterAll(() => browser.close())
  return browser
}

const installing = 'Debian: apt-get install chromium; macOS: brew install chromium'
if (command === undefined)
  process.stderr.write(`chromium is not installed: the tests that need a browser are skipped (${installing})\n`)
