import { acceptMultipart } from '../../../adapters/multipart.ts'
import type { App } from '../../../http/http.ts'
import { answerItem, answerList, writerOf } from '../../data/items/items.ts'
import type { FileWrites } from './capabilities.ts'
import { changeRoute, deleteRoute, fromUrlRoute, listRoute, readRoute, uploadRoute } from './declarations.ts'
import { changeFile, deleteFile, uploadFile } from './files.ts'
import { fetchFile } from './from-url.ts'

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
