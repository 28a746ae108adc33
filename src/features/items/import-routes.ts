import type { FastifyReply, FastifyRequest } from 'fastify'
import { acceptMultipart } from '../../adapters/multipart.ts'
import { admitted } from '../../admission/lane.ts'
import { errors } from '../../errors.ts'
import { type App, turnOf } from '../../http.ts'
import { readString } from '../../query/parse.ts'
import type { Runtime } from '../../runtime.ts'
import { importCsvRoute, importJsonRoute } from './declarations.ts'
import { checkImport, importItems } from './import.ts'
import type { ImportFormat } from './import-rows.ts'
import { queryOf, writerOf } from './routes.ts'
import { type Upload, type UploadedFile, withUpload } from './upload.ts'

/** Files as items, all or none. Nobody may call them without a session. */
export function itemImportRoutes(app: App, rt: Runtime): void {
  acceptMultipart(app, { fileSize: rt.config.files.maxUploadFileSize })
  app.post('/items/:collection/import-csv', importCsvRoute, (request, reply) =>
    imported(rt, request, reply, request.params.collection, 'CSV'),
  )
  app.post('/items/:collection/import-json', importJsonRoute, (request, reply) =>
    imported(rt, request, reply, request.params.collection, 'JSON'),
  )
}

async function imported(
  rt: Runtime,
  request: FastifyRequest,
  reply: FastifyReply,
  collection: string,
  format: ImportFormat,
): Promise<object> {
  await checkImport(rt, writerOf(request), collection)
  const entering = { shape: `import ${collection}`, presumed: 'heavy' } as const
  await rt.admission.turnAway(entering, turnOf(request))
  const count = await withUpload(rt, request, parts[format], ({ file, fields }) => {
    const { read } = requireFile(file, format)
    keepWaiting(reply)
    return admitted(rt.admission, entering, () =>
      // Who writes carries what the Idempotency-Key stands for, and the file is part of that.
      importItems(rt, writerOf(request), collection, { format, read, tenant: tenantOf(request, fields) }),
    )
  })
  return {
    success: true,
    message: `Successfully imported ${count} items`,
    results: { imported: count, failed: 0, errors: [] },
  }
}

/**
 * Nothing is sent or received while rows are written, and the server cuts silent connections after a minute. How long it
 * may take is the transaction's limit, so the answer is waited for: somebody who handles a timeout prevents the cut.
 */
function keepWaiting({ raw }: FastifyReply): void {
  raw.on('timeout', () => {})
}

const parts = { CSV: 'csvFile', JSON: 'jsonFile' } as const

/** By name or by type: browsers and systems disagree about the types of CSV files. */
const kinds = {
  CSV: { name: /\.csv$/i, type: /^text\/csv\b/i },
  JSON: { name: /\.json$/i, type: /^application\/json\b/i },
} as const

function requireFile(file: UploadedFile | undefined, format: ImportFormat): UploadedFile {
  if (file === undefined)
    throw errors.badBody(`No ${format} file provided`, `send it as the part ${parts[format]} of multipart/form-data`)
  const { name, type } = kinds[format]
  if (!name.test(file.name) && !type.test(file.type)) throw errors.badBody(`File must be a ${format} file`)
  return file
}

function tenantOf(request: FastifyRequest, fields: Upload['fields']): string | undefined {
  return fields.get('tenant') ?? readString('tenant', queryOf(request).tenant)
}
