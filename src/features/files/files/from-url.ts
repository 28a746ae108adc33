import { fetchUrlStream, UrlFetchError } from '../../../adapters/fetch-url.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Requester } from '../../data/items/items.ts'
import type { FileWrites } from './capabilities.ts'
import { tooLarge } from './content.ts'
import { requireRoom, saveFile } from './files.ts'
import type { Fields } from './form.ts'

/** Redirects that are followed; the address of each is checked anew. */
const redirects = 5
/** Of everything together, however slowly it comes. */
const longestMs = 10 * 60_000

/** A new file of what a URL answers; its id. 400 for a URL that leads where the server may not go. */
export async function fetchFile(deps: FileWrites, requester: Requester, url: string, fields: Fields): Promise<string> {
  const { maxUploadFileSize, allowPrivateUrlFetch, urlFetchTimeoutMs } = deps.config.files
  await requireRoom(deps, requester)
  try {
    const answer = await fetchUrlStream(url, {
      allowPrivate: allowPrivateUrlFetch,
      firstByteMs: urlFetchTimeoutMs,
      timeoutMs: longestMs,
      maxBytes: maxUploadFileSize,
      redirects,
      // A file is stored as it is, and counted as it is.
      headers: { 'accept-encoding': 'identity' },
    })
    try {
      if (answer.status < 200 || answer.status > 299)
        throw errors.badBody(`The URL answered with status ${answer.status}`)
      const {
        'content-encoding': encoding = 'identity',
        'content-length': length,
        'content-type': type,
      } = answer.headers
      if (encoding !== 'identity') throw errors.badBody('The URL answered with a compressed body')
      if (Number(length) > maxUploadFileSize) throw tooLarge()
      return await saveFile(deps, requester, { content: answer.body, name: nameIn(answer.url), declared: type }, fields)
    } finally {
      answer.body.destroy()
    }
  } catch (error) {
    throw error instanceof UrlFetchError ? refusalOf(error) : error
  }
}

function refusalOf(error: UrlFetchError): AppError {
  if (error.reason === 'size') return tooLarge()
  if (error.reason === 'time') return new AppError(504, 'The URL did not answer in time', { cause: error })
  return Object.assign(errors.badBody(error.message), { cause: error })
}

/** The last part of the path. */
function nameIn({ pathname }: URL): string {
  const last = pathname.split('/').at(-1) ?? ''
  try {
    return decodeURIComponent(last) || 'download'
  } catch {
    return last || 'download'
  }
}
