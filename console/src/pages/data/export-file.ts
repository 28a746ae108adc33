import { DaybookError } from '../../../../clients/client.ts'
import { type ExportFormat, rowCounter } from './row-counter.ts'

/** How far an export is. */
export type Exported = { readonly rows: number; readonly bytes: number }

/**
 * Reads an export to its end. The browser keeps what has come where it has room for it, on the disk if need be.
 *
 * @throws {DaybookError} what the server refuses; any other error where the answer breaks off
 */
export async function readExport(
  address: string,
  format: ExportFormat,
  { signal, onProgress }: { readonly signal: AbortSignal; readonly onProgress: (so: Exported) => void },
): Promise<{ readonly content: Blob; readonly name: string; readonly rows: number }> {
  const answer = await fetch(address, { signal })
  if (!answer.ok) throw await refusal(answer)
  const count = rowCounter(format)
  const parts: Blob[] = []
  let pending: Uint8Array<ArrayBuffer>[] = []
  let [rows, bytes, held] = [0, 0, 0]
  const keep = () => {
    parts.push(new Blob(pending))
    pending = []
    held = 0
  }
  for await (const chunk of chunksOf(answer)) {
    rows = count(chunk)
    bytes += chunk.length
    held += chunk.length
    pending.push(chunk)
    if (held > mostHeld) keep()
    onProgress({ rows, bytes })
  }
  keep()
  const type = answer.headers.get('content-type') ?? ''
  const name = /filename="([^"]+)"/.exec(answer.headers.get('content-disposition') ?? '')?.[1] ?? `export.${format}`
  return { content: new Blob(parts, { type }), name, rows }
}

const mostHeld = 8_000_000

async function* chunksOf(answer: Response): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  const reader = answer.body!.getReader()
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    yield value
  }
}

async function refusal(answer: Response): Promise<DaybookError> {
  const text = await answer.text()
  const { error } = (text.startsWith('{') ? JSON.parse(text) : {}) as {
    error?: { message?: string; code?: string; details?: unknown }
  }
  return new DaybookError(error?.message ?? `The server answered ${answer.status}`, {
    status: answer.status,
    code: error?.code ?? 'HTTP_ERROR',
    details: error?.details,
  })
}

/** Has the browser save a file under a name. */
export function saveFile(content: Blob, name: string): void {
  const address = URL.createObjectURL(content)
  const link = document.createElement('a')
  link.href = address
  link.download = name
  link.click()
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000)
}
