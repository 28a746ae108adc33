import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from '../../../adapters/typebox.ts'
import type { UploadRow } from '../../../db/unlogged/files.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Nothing, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import { requesterOf } from '../../data/items/items.ts'
import type { FileWrites } from '../files/files.ts'
import {
  meantMethod,
  offered,
  readBytes,
  readChecksum,
  readMetadata,
  requireVersion,
  tusVersion,
  writtenMetadata,
} from './protocol.ts'
import { addToUpload, createUpload, endEarly, readUpload, type UploadAddition } from './tus.ts'

const chunk = 'application/offset+octet-stream'

/** Resumable uploads by tus 1.0 (docs/files.md). Each request is permitted anew. */
export function tusRoutes(app: App, deps: FileWrites): void {
  app.register(async (scope) => {
    scope.addContentTypeParser(chunk, (_request, _payload, done) => done(null))
    scope.addHook('onRequest', (request, reply, done) => {
      reply.header('tus-resumable', tusVersion)
      requireVersion(request.headers['tus-resumable'])
      done()
    })
    requests(scope as App, deps)
  })
}

/** Announces the protocol to everybody: a client asks before it has anything to send. */
export function tusOfferRoutes(app: App, { config }: FileWrites): void {
  const headers = { ...offered, 'tus-max-size': String(config.files.maxUploadFileSize) }
  for (const path of ['/files/tus', '/files/tus/:id'])
    app.options(path, offerRoute, async (_request, reply) => reply.code(204).headers(headers).send())
}

function requests(app: App, deps: FileWrites): void {
  app.post('/files/tus', createRoute, async (request, reply) => {
    const { headers } = request
    const length = readBytes('Upload-Length', headers['upload-length'])
    const metadata = readMetadata(headers['upload-metadata'])
    const upload = await createUpload(deps, requesterOf(request), { length, metadata })
    return described(reply.code(201), upload).header('location', `/files/tus/${upload.id}`).send()
  })
  app.head('/files/tus/:id', readRoute, async (request, reply) => {
    const upload = await readUpload(deps, requesterOf(request), idOf(request))
    return described(reply.code(200), upload)
      .headers({ 'cache-control': 'no-store', 'upload-length': String(upload.length) })
      .header('upload-metadata', writtenMetadata(upload.metadata))
      .send()
  })
  const { maxUploadFileSize } = deps.config.files
  const add = async (request: FastifyRequest, reply: FastifyReply) => {
    requireChunk(request)
    const upload = await addToUpload(deps, requesterOf(request), idOf(request), additionOf(request))
    return described(reply.code(204), upload).send()
  }
  const end = async (request: FastifyRequest, reply: FastifyReply) => {
    await endEarly(deps, requesterOf(request), idOf(request))
    return reply.code(204).send()
  }
  app.patch('/files/tus/:id', { ...addRoute, bodyLimit: maxUploadFileSize }, add)
  app.delete('/files/tus/:id', deleteRoute, end)
  const meant = { PATCH: add, DELETE: end } as const
  app.post('/files/tus/:id', { ...meantRoute, bodyLimit: maxUploadFileSize }, (request, reply) =>
    meant[meantMethod(request.headers['x-http-method-override'])](request, reply),
  )
}

/** 415 for another type of content. */
function requireChunk({ headers }: FastifyRequest): void {
  if (headers['content-type'] !== chunk) throw new AppError(415, `Content-Type must be ${chunk}`)
}

/** The part that a request brings. */
function additionOf({ headers, raw }: FastifyRequest): UploadAddition {
  return {
    offset: readBytes('Upload-Offset', headers['upload-offset']),
    content: raw,
    size: headers['content-length'] === undefined ? undefined : Number(headers['content-length']),
    checksum: readChecksum(headers['upload-checksum']),
  }
}

function described(reply: FastifyReply, { offset, expiresAt, fileId }: UploadRow): FastifyReply {
  reply.headers({ 'upload-offset': String(offset), 'upload-expires': expiresAt.toUTCString() })
  return fileId === null ? reply : reply.header('x-file-id', fileId)
}

function idOf({ params }: FastifyRequest): string {
  const { id } = params as { id: string }
  if (!isUuid(id)) throw new AppError(404, 'Upload not found')
  return id
}

const tag = 'Files'
const Params = Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') })
const offerRoute = route(
  { summary: 'Ask what is offered of tus 1.0', scope: 'read', tag, response: { 204: Nothing }, sendsText: true },
  // A browser's question whether it may ask is answered by the same.
  { config: { cors: { strictPreflight: false, preflightContinue: true } } },
)
const createRoute = route({
  summary: 'Begin a resumable upload',
  scope: 'write',
  description: 'By tus 1.0: `Upload-Length` and `Upload-Metadata`; `Location` is where it goes on.',
  tag,
  response: { 201: Nothing },
  sendsText: true,
})
const readRoute = route({
  summary: 'Ask where a resumable upload is',
  scope: 'read',
  tag,
  params: Params,
  response: { 200: Nothing },
  sendsText: true,
})
const addRoute = route(
  {
    summary: 'Go on with a resumable upload',
    scope: 'write',
    description: '`x-file-id` of the last answer is the id of the file.',
    tag,
    params: Params,
    body: Text('(bytes)', { contentMediaType: chunk }),
    response: { 204: Nothing },
    readElsewhere: 'all',
    sendsText: true,
  },
  { config: { streamedBody: true } },
)
const meantRoute = route(
  {
    summary: 'Go on with a resumable upload, or give it up, by POST',
    scope: 'write',
    description: 'For clients that cannot send `PATCH` or `DELETE`: `X-HTTP-Method-Override` names it.',
    tag,
    params: Params,
    body: Type.Optional(Text('(bytes)', { contentMediaType: chunk })),
    response: { 204: Nothing },
    readElsewhere: 'all',
    sendsText: true,
  },
  { config: { streamedBody: true } },
)
const deleteRoute = route({
  summary: 'Give a resumable upload up',
  scope: 'write',
  tag,
  params: Params,
  response: { 204: Nothing },
  sendsText: true,
})
