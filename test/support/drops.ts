import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Locator, Page } from 'playwright-core'

type Content = Readonly<Record<string, string | Buffer>>

export type Drag = {
  /** Moves the files over an element, as a browser tells the page of it. */
  over(target: Locator): Promise<void>
  drop(target: Locator): Promise<void>
}

/** Drags files from outside of the browser, and drops them. */
export async function dragFiles(page: Page, content: Content): Promise<Drag & AsyncDisposable> {
  const folder = await mkdtemp(join(tmpdir(), 'drop-'))
  const files = Object.keys(content).map((name) => join(folder, name))
  for (const [name, bytes] of Object.entries(content)) await writeFile(join(folder, name), bytes)
  const session = await page.context().newCDPSession(page)
  const send = async (type: 'dragEnter' | 'dragOver' | 'drop', target: Locator) => {
    await target.scrollIntoViewIfNeeded()
    const { x, y, width, height } = (await target.boundingBox())!
    const data = { items: [], files, dragOperationsMask: 1 }
    await session.send('Input.dispatchDragEvent', { type, x: x + width / 2, y: y + height / 2, data })
  }
  const over = async (target: Locator) => {
    await send('dragEnter', target)
    await send('dragOver', target)
  }
  return {
    over,
    async drop(target) {
      await over(target)
      await send('drop', target)
    },
    async [Symbol.asyncDispose]() {
      await session.detach()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Pastes files where the keyboard is, with what else the clipboard has. */
export async function pasteFiles(page: Page, content: Content, text?: string): Promise<void> {
  const files = Object.entries(content).map(([name, bytes]) => [name, Buffer.from(bytes).toString('base64')] as const)
  await page.evaluate(
    `(() => {
      const data = new DataTransfer()
      for (const [name, bytes] of ${JSON.stringify(files)})
        data.items.add(new File([Uint8Array.from(atob(bytes), (one) => one.charCodeAt(0))], name, { type: 'image/png' }))
      ${text === undefined ? '' : `data.items.add(${JSON.stringify(text)}, 'text/plain')`}
      const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })
      document.activeElement.dispatchEvent(event)
    })()`,
  )
}
