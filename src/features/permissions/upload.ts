import type { FastifyRequest } from 'fastify'
import { acceptMultipart } from '../../adapters/multipart.ts'
import { errors } from '../../errors.ts'
import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'

/** Reads multipart bodies in this scope. A file larger than any other body answers 413. */
export function acceptUploads(app: App, rt: Runtime): void {
  acceptMultipart(app, { fileSize: rt.config.server.bodySizeLimit })
}

/** The JSON file in the part `rolesPermissions` of an upload; 400 where there is none or it is something else. */
export async function uploadedPermissions(request: FastifyRequest): Promise<unknown> {
  const file = request.isMultipart() ? await filePart(request) : undefined
  if (file === undefined) throw errors.badBody('No roles & permissions file uploaded')
  if (!/\.json$/i.test(file.name) && !/^application\/json\b/i.test(file.type))
    throw errors.badBody('Invalid file type. Please upload a JSON file')
  try {
    return JSON.parse(file.text)
  } catch (error) {
    if (error instanceof SyntaxError) throw errors.badBody('Invalid JSON file')
    throw error
  }
}

type UploadedFile = { readonly name: string; readonly type: string; readonly text: string }

/** Every part is read to its end, or the connection would wait for it. */
async function filePart(request: FastifyRequest): Promise<UploadedFile | undefined> {
  let found: UploadedFile | undefined
  try {
    for await (const part of request.parts()) {
      if (part.type !== 'file') continue
      const text = (await part.toBuffer()).toString('utf8')
      if (part.fieldname === 'rolesPermissions') found = { name: part.filename, type: part.mimetype, text }
    }
  } catch (error) {
    // Limits have a status of their own; what the parser throws is about bytes that are no multipart body.
    if ((error as { statusCode?: number }).statusCode !== undefined) throw error
    throw Object.assign(errors.badBody('The upload cannot be read'), { cause: error })
  }
  return found
}
