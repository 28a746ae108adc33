import { type Answer, DaybookError, type Http, pause, type RequestOptions, segmentOf } from './http.ts'

export type FileRow = {
  readonly id: string
  readonly title: string | null
  readonly filename: string
  readonly originalFilename: string
  readonly type: string
  readonly size: number
  readonly storage: string
  readonly folder: string | null
  readonly description: string | null
  readonly isPublic: boolean
} & Readonly<Record<string, unknown>>

export type UploadOptions = {
  readonly title?: string
  readonly description?: string
  readonly folder?: string
  readonly isPublic?: boolean
  /** The name of a storage service. */
  readonly storage?: string
  /** Called with the share of the file that has arrived, from 0 to 1. */
  readonly onProgress?: (share: number) => void
  readonly signal?: AbortSignal
}

/** Width, height, fit, quality and format of a picture, in the words of docs/assets.md. */
export type Transform = Readonly<Record<string, string | number | boolean>>

export type Files = {
  /** In pieces, so that it goes on after a break: of the connection, or of the server. */
  upload(file: File | Blob, options?: UploadOptions & { readonly filename?: string }): Promise<string>
  read(id: string): Promise<FileRow>
  delete(id: string): Promise<void>
  /** The address of a file's content, for those who may read it. */
  address(id: string, transform?: Transform): string
  /** An address that shows the content to whoever has it, for so many seconds. */
  signedAddress(id: string, expiresIn: number, transform?: Transform): Promise<string>
}

const pieceBytes = 5 * 1_048_576
/** Breaks in a row, after which an upload is given up. */
const mostBreaks = 8
const breakPauseMs = 500

export function openFiles(http: Http): Files {
  const path = (id: string) => `/files/${segmentOf(id)}`
  return {
    upload: (file, options = {}) => upload(http, file, options),
    read: async (id) => (await http.ask<{ data: FileRow }>(path(id))).data,
    async delete(id) {
      await http.ask(path(id), { method: 'DELETE' })
    },
    address: (id, transform = {}) => {
      const query = new URLSearchParams(Object.entries(transform).map(([name, value]) => [name, String(value)]))
      return `${http.url}/assets/${encodeURIComponent(id)}${query.size === 0 ? '' : `?${query}`}`
    },
    async signedAddress(id, expiresIn, transform) {
      const body = { expiresIn, ...(transform && { transform }) }
      const { data } = await http.ask<{ data: { url: string } }>(`${path(id)}/signed-url`, { method: 'POST', body })
      // Whole where the server has been told its address; else without the path under which a proxy has it.
      return data.url.startsWith('/') ? http.url + data.url : data.url
    },
  }
}

const tus = { 'tus-resumable': '1.0.0' }

/** The protocol tus 1.0: what has arrived stays, and the next piece begins where it ends. */
async function upload(
  http: Http,
  file: File | Blob,
  { onProgress, signal, filename, ...metadata }: UploadOptions & { readonly filename?: string },
): Promise<string> {
  const name = filename ?? ('name' in file ? file.name : 'file')
  const described = { filename: name, filetype: file.type || 'application/octet-stream', ...metadata }
  const created = await begun(http, {
    method: 'POST',
    headers: { ...tus, 'upload-length': String(file.size), 'upload-metadata': encoded(described) },
    signal,
  })
  const place = new URL(created.headers.get('location') ?? '', `${http.url}/files/tus/`).pathname
  // A proxy that has the server under a path may put it before the place, or not.
  const path = place.slice(place.lastIndexOf('/files/tus/'))
  try {
    return await sent(http, path, file, { onProgress, signal })
  } catch (error) {
    // Its caller hears at once; one that cannot be ended now ends by itself.
    void givenUp(http, path).catch(() => undefined)
    throw error
  }
}

/** Sends the pieces of an upload that has begun: the file's id. */
async function sent(
  http: Http,
  path: string,
  file: File | Blob,
  { onProgress, signal }: Pick<UploadOptions, 'onProgress' | 'signal'>,
): Promise<string> {
  let offset = 0
  for (let breaks = 0; ; ) {
    try {
      const headers = { ...tus, 'upload-offset': String(offset), 'content-type': 'application/offset+octet-stream' }
      const body = file.slice(offset, offset + pieceBytes)
      const answer = await http.send(path, { method: 'PATCH', headers, body, signal })
      offset = Number(answer.headers.get('upload-offset'))
      breaks = 0
      onProgress?.(file.size === 0 ? 1 : offset / file.size)
      const id = answer.headers.get('x-file-id')
      if (id !== null) return id
    } catch (error) {
      breaks += 1
      if (!isBreak(error) || breaks > mostBreaks) throw error
      await pauseAfter(error, breaks, signal)
      offset = await reached(http, path, signal, offset)
    }
  }
}

/** Ends an upload at the server, which counts those that are unfinished; a piece may be on its way still. */
async function givenUp(http: Http, path: string): Promise<void> {
  for (let breaks = 1; ; breaks += 1)
    try {
      await http.send(path, { method: 'DELETE', headers: tus })
      return
    } catch (error) {
      if (!isBreak(error) || breaks > mostBreaks) throw error
      await pauseAfter(error, breaks, undefined)
    }
}

/** One that was begun without an answer ends by itself. */
async function begun(http: Http, options: RequestOptions): Promise<Answer<unknown>> {
  for (let breaks = 1; ; breaks += 1)
    try {
      return await http.send('/files/tus', options)
    } catch (error) {
      if (!isBreak(error) || breaks > mostBreaks) throw error
      await pauseAfter(error, breaks, options.signal)
    }
}

/**
 * Another piece is on its way still (423), or its beginning is elsewhere (409): the server knows where to go on. That there are
 * too many unfinished uploads does not pass by waiting.
 */
const isBreak = (error: unknown): boolean =>
  error instanceof DaybookError &&
  error.code !== 'TOO_MANY_UPLOADS' &&
  (error.status === 0 || error.status >= 500 || [409, 423, 429].includes(error.status))

const pauseAfter = (error: unknown, breaks: number, signal: AbortSignal | undefined): Promise<void> =>
  pause((error as DaybookError).retryAfterMs ?? breakPauseMs * breaks, signal)

async function reached(http: Http, path: string, signal: AbortSignal | undefined, known: number): Promise<number> {
  try {
    const { headers } = await http.send(path, { method: 'HEAD', headers: tus, signal })
    return Number(headers.get('upload-offset'))
  } catch (error) {
    if (isBreak(error)) return known
    throw error
  }
}

/** Names with their values in base 64, of UTF-8. */
function encoded(metadata: Readonly<Record<string, unknown>>): string {
  return Object.entries(metadata)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${btoa(String.fromCodePoint(...new TextEncoder().encode(String(value))))}`)
    .join(',')
}
