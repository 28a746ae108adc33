import multipart from '@fastify/multipart'
import type { FastifyRequest } from 'fastify'
import { errors } from '../../errors.ts'
import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'

/** Reads multipart bodies in this scope, unless the whole server does already. A larger file answers 413. */
export async function acceptUploads(app: App, rt: Runtime): Promise<void> {
  if (app.hasContentTypeParser('multipart/form-data')) return
  await app.register(multipart, { limits: { fileSize: rt.config.server.bodySizeLimit, files: 1, fields: 10 } })
}

/** The JSON file in the part `rolesPermissions` of an upload; 400 where there is none or it is something else. */
export async function uploadedPermissions(request: FastifyRequest): Promise<unknown> {
  const text = request.isMultipart() ? await filePart(request) : undefined
  if (text === undefined) throw errors.badBody('No roles & permissions file uploaded')
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) throw errors.badBody('Invalid JSON file')
    throw error
  }
}

/** Every part is read to its end, or the connection would wait for it. */
async function filePart(request: FastifyRequest): Promise<string | undefined> {
  let text: string | undefined
  for await (const part of request.parts()) {
    if (part.type !== 'file') continue
    const content = await part.toBuffer()
    if (part.fieldname !== 'rolesPermissions') continue
    if (!/\.json$/i.test(part.filename) && !/^application\/json\b/i.test(part.mimetype))
      throw errors.badBody('Invalid file type. Please upload a JSON file')
    text = content.toString('utf8')
  }
  return text
}
