import { acceptMultipart } from '../../../adapters/multipart.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { answerItem, answerList, writerOf } from '../../data/items/items.ts'
import type { FileWrites } from './capabilities.ts'
import {
  changeRoute,
  deleteRoute,
  fromUrlRoute,
  listRoute,
  migrateRoute,
  readRoute,
  uploadRoute,
  usageRoute,
} from './declarations.ts'
import { changeFile, countMovable, deleteFile, moveFiles, toFolders, uploadFile } from './files.ts'
import { fetchFile } from './from-url.ts'
import { usageOfTenants } from './queries.ts'

const fieldsAtMost = 20

/** Files: their rows, and how their content comes (docs/files.md). */
export function fileRoutes(app: App, rt: FileWrites): void {
  // The size is counted where the content is stored.
  acceptMultipart(app, { fileSize: Number.POSITIVE_INFINITY, fields: fieldsAtMost })
  app.get('/files', listRoute, (request, reply) => answerList(rt, request, reply, 'svc_File'))
  app.get('/files/:id', readRoute, (request, reply) => answerItem(rt, request, reply, 'svc_File', request.params.id))
  app.post('/files', uploadRoute, async (request) => ({ data: await uploadFile(rt, request) }))
  for (const path of ['/files/upload-from-url', '/files/import'])
    app.post(path, fromUrlRoute, async (request) => {
      const { url, ...fields } = request.body
      return { data: await fetchFile(rt, writerOf(request), url, new Map(Object.entries(fields))) }
    })
  app.patch('/files/:id', changeRoute, async (request) => ({ data: await changeFile(rt, request, request.params.id) }))
  app.delete('/files/:id', deleteRoute, async (request) => {
    await deleteFile(rt, request, request.params.id)
    return { message: 'File deleted successfully' }
  })
}

/** Routes for administrators. */
export function fileAdminRoutes(app: App, rt: FileWrites): void {
  app.get('/files/usage', usageRoute, async () => ({ data: await usageOfTenants(rt) }))
  app.post('/files/migrate-storage-structure', migrateRoute, async (request, reply) => {
    if (request.query.dryRun === true) {
      const scanned = await countMovable(rt, toFolders)
      return { data: { dryRun: true, scanned, planned: scanned } }
    }
    // Nothing is sent while files are moved, and the server cuts silent connections after a minute: who handles that
    // prevents it. A client that goes away ends the move between two pages; it can be made again.
    reply.raw.on('timeout', () => {})
    return { data: { dryRun: false, ...(await moveFiles(rt, actorOf(request), toFolders)) } }
  })
}
