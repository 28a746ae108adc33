import { promisify } from 'node:util'
import { gzip as gzipCallback } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { varyBy } from '../../../http/http.ts'
import { isFresh, listTag } from '../../data/items/items.ts'

/** A text that is sent again and again: with its tag, and compressed for the first who takes that. */
export type KeptText = { readonly plain: Buffer; readonly tag: string; compressed(): Promise<Buffer> }

const gzip = promisify(gzipCallback)

export function keptText(plain: Buffer): KeptText {
  let compressed: Promise<Buffer> | undefined
  return {
    plain,
    tag: listTag(plain.toString('latin1')),
    compressed: () => {
      compressed ??= gzip(plain)
      return compressed
    },
  }
}

/** Sends it; 304 to a client that has it already. */
export async function sendKept({ headers }: FastifyRequest, reply: FastifyReply, text: KeptText) {
  varyBy(reply, 'Accept-Encoding').header('etag', text.tag)
  if (isFresh(headers['if-none-match'], text.tag)) return reply.code(304).send()
  if (!/\bgzip\b/.test(String(headers['accept-encoding'] ?? ''))) return reply.send(text.plain)
  return reply.header('content-encoding', 'gzip').send(await text.compressed())
}
