import { Readable } from 'node:stream'
import { acceptMultipart } from '../../../adapters/multipart.ts'
import { type ProgressNotices, toldOf } from '../../../events/progress.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { answerItem, answerList, importContent, requesterOf } from '../../data/items/items.ts'
import { type AssetWrites, contentsOf, fileNotFound, readableAsset } from '../assets/assets.ts'
import type { FileWrites } from './capabilities.ts'
import {
  changeRoute,
  deleteRoute,
  fromUrlRoute,
  importRoute,
  listRoute,
  migrateRoute,
  readRoute,
  uploadRoute,
  usageRoute,
} from './declarations.ts'
import { changeFile, countMovable, deleteFile, type Moved, moveFiles, toFolders, uploadFile } from './files.ts'
import { fetchFile } from './from-url.ts'
import { usageOfTenants } from './queries.ts'

const fieldsAtMost = 20

/** Files: their rows, and how their content comes (docs/files.md). */
export function fileRoutes(app: App, deps: FileWrites): void {
  // The size is counted where the content is stored.
  acceptMultipart(app, { fileSize: Number.POSITIVE_INFINITY, fields: fieldsAtMost })
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

/** For callers that are somebody. */
export function fileBearerRoutes(app: App, deps: FileWrites & AssetWrites & ProgressNotices): void {
  app.post('/files/:id/import', importRoute, async (request, reply) => {
    const file = await readableAsset(deps, request.caller, request.params.id)
    const { collection, format, tenant } = request.body
    const content = async () => {
      const found = await contentsOf(deps).original(file).read()
      if (found === undefined) throw fileNotFound()
      return Buffer.isBuffer(found) ? Readable.from([found]) : found
    }
    const { name, type } = file
    return importContent(deps, { request, reply }, collection, {
      ...{ name, type, tenant, content },
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
