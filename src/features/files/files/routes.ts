import { Readable } from 'node:stream'
import { acceptMultipart } from '../../../adapters/fastify.ts'
import { fetchUrlStream, UrlFetchError } from '../../../adapters/fetch-url.ts'
import { Type } from '../../../adapters/typebox.ts'
import { AppError, errors } from '../../../errors.ts'
import { type ProgressNotices, toldOf } from '../../../events/progress.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Count, Filled, Id, Nothing, NullableId, OneOf, Row, Said, Text } from '../../../http/shapes.ts'
import {
  answerItem,
  answerList,
  fileBody,
  ImportedShape,
  ItemsShape,
  importContent,
  ListQuery,
  notationShape,
  ReadQuery,
  type Requester,
  requesterOf,
  TriedShape,
} from '../../data/items/items.ts'
import { type AssetWrites, contentsOf, fileNotFound, readableAsset } from '../assets/assets.ts'
import { type FileWrites, tooLarge } from './content.ts'
import {
  changeFile,
  countMovable,
  deleteFile,
  type Fields,
  type Moved,
  moveFiles,
  requireRoom,
  saveFile,
  toFolders,
  uploadFile,
} from './files.ts'
import { usageOfTenants } from './queries.ts'

const fieldsAtMost = 20

/** Files: their rows, and how their content comes (docs/files.md). */
export function fileRoutes(app: App, deps: FileWrites): void {
  acceptMultipart(app, { fileSize: deps.config.files.maxUploadFileSize, fields: fieldsAtMost, tooLarge })
  app.get('/files', listRoute, (request, reply) => answerList(deps, request, reply, 'svc_File'))
  app.get('/files/:id', readRoute, (request, reply) => answerItem(deps, request, reply, 'svc_File', request.params.id))
  app.post('/files', uploadRoute, async (request) => ({ data: await uploadFile(deps, request) }))
  for (const path of ['/files/upload-from-url', '/files/import'])
    app.post(path, fromUrlRoute, async (request) => {
      const { url, ...fields } = request.body
      return { data: await fetchFile(deps, requesterOf(request), url, new Map(Object.entries(fields))) }
    })
  app.patch('/files/:id', changeRoute, async (request) => ({
    data: await changeFile(deps, request, request.params.id),
  }))
  app.delete('/files/:id', deleteRoute, async (request) => {
    await deleteFile(deps, request, request.params.id)
    return { message: 'File deleted successfully' }
  })
}

/** For known callers. */
export function fileBearerRoutes(app: App, deps: FileWrites & AssetWrites & ProgressNotices): void {
  app.post('/files/:id/import', importRoute, async (request, reply) => {
    const file = await readableAsset(deps, request.caller, request.params.id)
    const { collection, format, encoding, tenant, dryRun = false, timezone, decimal, dateFormat } = request.body
    const content = async () => {
      const found = await contentsOf(deps).original(file).read()
      if (found === undefined) throw fileNotFound()
      return Buffer.isBuffer(found) ? Readable.from([found]) : found
    }
    const { name, type } = file
    return importContent(deps, { request, reply }, collection, {
      ...{ name, type, encoding, tenant, dryRun, content },
      notation: { timezone, decimal, dateFormat },
      format: format === undefined ? undefined : format === 'csv' ? 'CSV' : 'JSON',
    })
  })
}

/** Routes for administrators. */
export function fileAdminRoutes(app: App, deps: FileWrites & ProgressNotices): void {
  app.get('/files/usage', usageRoute, async () => ({ data: await usageOfTenants(deps) }))
  app.post('/files/migrate-storage-structure', migrateRoute, async (request, reply) => {
    if (request.query.dryRun === true) {
      const scanned = await countMovable(deps, toFolders)
      return { data: { dryRun: true, scanned, planned: scanned } }
    }
    // Nothing is sent while files are moved, and the server cuts silent connections after a minute: who handles that
    // prevents it. A client that goes away ends the move between two pages; it can be made again.
    reply.raw.on('timeout', () => {})
    const progress = deps.progress(actorOf(request), { type: 'files', title: 'Files are being moved into folders' })
    const tell = ({ scanned, moved, failed }: Moved) =>
      progress.at(`${moved} files have been moved`, { scanned, moved, failed })
    const work = () => moveFiles(deps, actorOf(request), toFolders, tell)
    const done = await toldOf(progress, work, ({ scanned, moved, failed }) => ({
      message: `${moved} files have been moved, ${failed} could not be`,
      data: { scanned, moved, failed },
    }))
    return { data: { dryRun: false, ...done } }
  })
}

const tag = 'Files'
const id = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
const Params = Type.Object({ id: Text(id) })
const Saved = Type.Object({ data: Text(id, { description: 'The id of the file.' }) })
const said = (example: string, description: string) => Type.Optional(Text(example, { description }))

/** The sender's description of a file; all of it is text in a form. */
const spoken = {
  title: said('Portrait', 'The name of the file unless given.'),
  description: said('Ada at her desk', 'Free text.'),
  folder: said('portraits', 'A label to sort files by; no path.'),
  storage: said('local', 'The storage service; STORAGE_DEFAULT_SERVICE unless given.'),
  isPublic: said('false', 'Whether everybody may read it.'),
  originalFilename: said('ada.png', 'The name that downloads have; that of the upload unless given.'),
  metadata: said('{"camera":"box"}', 'JSON.'),
}

/** The body is a stream: it may take as long as it moves. */
const streamed = { config: { streamedBody: true } } as const

const listRoute = route({
  summary: 'List files',
  scope: 'read',
  description: 'As `GET /items/svc_File`.',
  tag,
  query: ListQuery,
  response: { 200: ItemsShape, 304: Nothing },
  readElsewhere: 'all',
  sendsText: true,
})
const readRoute = route({
  summary: 'Read what is known of a file',
  scope: 'read',
  tag,
  params: Params,
  query: ReadQuery,
  response: { 200: Type.Object({ data: Row }), 304: Nothing },
  readElsewhere: 'all',
  sendsText: true,
})
const uploadRoute = route(
  {
    summary: 'Upload a file',
    scope: 'write',
    description: 'As a form. Fields may precede the file or follow it.',
    tag,
    body: fileBody('file', spoken),
    response: { 200: Saved },
    readElsewhere: 'all',
  },
  streamed,
)
const fromUrlRoute = route({
  summary: 'Fetch a file from a URL',
  reachesOutside: true,
  scope: 'write',
  tag,
  body: Type.Object(
    { url: Text('https://example.com/ada.png', { refusal: 'url must be an http or https address' }) },
    { additionalProperties: true },
  ),
  response: { 200: Saved },
})
const changeRoute = route(
  {
    summary: 'Change a file',
    scope: 'write',
    description:
      'JSON for what is said of it, a form to replace its content as well. With `If-Match` only the version that it names.',
    tag,
    params: Params,
    body: Type.Object(
      { file: Type.Optional(Text('(a file)', { format: 'binary' })), ...spoken },
      { additionalProperties: true },
    ),
    response: { 200: Saved },
    readElsewhere: 'all',
  },
  streamed,
)
const deleteRoute = route({
  summary: 'Delete a file',
  scope: 'write',
  description: 'With its content and everything that was made of it. With `If-Match` only the version that it names.',
  tag,
  params: Params,
  response: { 200: Said('File deleted successfully') },
})

const importRoute = route({
  summary: 'Import rows from a stored file',
  scope: 'write',
  description:
    'A CSV or JSON file that the caller may read, as `POST /items/{collection}/import-csv` takes it: all rows or none.',
  tag,
  params: Params,
  body: Type.Object(
    {
      collection: Filled('country', { refusal: 'collection is required' }),
      format: Type.Optional(
        OneOf(['csv', 'json'], {
          examples: ['csv'],
          description: 'By the name or the type of the file unless given.',
          refusal: 'format must be csv or json',
        }),
      ),
      encoding: Type.Optional(
        Text('windows-1252', {
          description: 'Of the file, where it is neither UTF-8 nor UTF-16 with a byte order mark.',
        }),
      ),
      ...notationShape,
      tenant: Type.Optional(Id({ description: 'Of the rows, for callers that no tenant is stamped for.' })),
      dryRun: Type.Optional(
        Type.Boolean({ description: 'Writes nothing and answers what an import would do.', examples: [true] }),
      ),
    },
    { additionalProperties: false },
  ),
  response: {
    200: Type.Union([ImportedShape, TriedShape]),
  },
})

const counted = (example: number) => Type.Optional(Count(example))
const migrateRoute = route({
  summary: 'Move files into the folders of their tenant and user',
  scope: 'admin',
  description: 'While they are served. Can be repeated at any time; 409 while another one runs.',
  tag,
  query: Type.Object({ dryRun: Type.Optional(Type.Boolean({ description: 'Only counts.', examples: [false] })) }),
  response: {
    200: Type.Object({
      data: Type.Object({
        dryRun: Type.Boolean(),
        scanned: Count(3),
        planned: counted(3),
        moved: counted(3),
        skipped: Type.Optional(Count(0, { description: 'Changed or deleted meanwhile.' })),
        failed: counted(0),
        errors: Type.Optional(Type.Array(Type.Object({ id: Text(id), message: Text('content is gone') }))),
      }),
    }),
  },
})
const usageRoute = route({
  summary: 'Read what the files of each tenant come to',
  scope: 'admin',
  description: 'By storage service, in bytes; exact at any moment.',
  tag,
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({ tenant_Id: NullableId(), storage: Text('local'), files: Count(12), bytes: Count(3_145_728) }),
      ),
    }),
  },
})

/** Redirects that are followed; the address of each is checked anew. */
const redirects = 5
/** Of everything together, however slowly it comes. */
const longestMs = 10 * 60_000

/** A new file of what a URL answers; its id. 400 for a URL that leads where the server may not go. */
async function fetchFile(deps: FileWrites, requester: Requester, url: string, fields: Fields): Promise<string> {
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
