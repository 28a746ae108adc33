import type { FastifyRequest } from 'fastify'
import { acceptMultipart } from '../../adapters/multipart.ts'
import type { Config } from '../../config.ts'
import { AppError } from '../../errors.ts'
import type { App } from '../../http.ts'

/** Lets the routes of this scope take multipart bodies: one file, as large as any other body. */
export function acceptUploads(app: App, { server }: Config): void {
  const size = server.bodySizeLimit
  acceptMultipart(app, { fileSize: size, fieldSize: size })
}

/** The text of the part `schema`, a JSON file or field. 400 without one, 413 when it is too large. */
export async function uploadedSchema(request: FastifyRequest): Promise<string> {
  if (!request.isMultipart()) throw missing()
  for await (const part of request.parts()) {
    if (part.type === 'field') {
      if (part.fieldname === 'schema') return String(part.value)
      continue
    }
    const text = (await part.toBuffer()).toString('utf8')
    if (part.fieldname !== 'schema') continue
    if (!/\.json$/i.test(part.filename) && part.mimetype !== 'application/json')
      throw new AppError(400, 'Invalid file type. Please upload a JSON file')
    return text
  }
  throw missing()
}

function missing(): AppError {
  return new AppError(400, 'No schema file uploaded')
}
