import { createHash } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { acceptMultipart } from '../adapters/fastify.ts'
import type { Config } from '../config/config.ts'
import { AppError, errors } from '../errors.ts'
import { type App, identifyBody } from './http.ts'
import { decodeText, isTooDeep, refuseUnkeepable } from './json-values.ts'

/** Lets the routes of this scope take forms with one JSON file, as large as any other body; 413 beyond. */
export function acceptJsonUploads(app: App, { server }: Config): void {
  const size = server.bodySizeLimit
  acceptMultipart(app, { fileSize: size, fieldSize: size })
}

/**
 * Reads the JSON file (or field) in a part of a form. 400 with the message `missing` if there is no such part, with
 * other messages if the body is no form, or the part no JSON or nested more deeply than any other body may be.
 */
export async function uploadedJson(request: FastifyRequest, part: string, missing: string): Promise<unknown> {
  return (await uploadedForm(request, part, missing)).value
}

/** The same with the other fields of the form, the last of each name. */
export async function uploadedForm(
  request: FastifyRequest,
  part: string,
  missing: string,
): Promise<{ readonly value: unknown; readonly fields: ReadonlyMap<string, string> }> {
  const { text, fields } = request.isMultipart()
    ? await partsOf(request, part)
    : { text: undefined, fields: new Map<string, string>() }
  if (text === undefined) throw errors.badBody(missing, `send it as the part ${part} of multipart/form-data`)
  identifyBody(request, createHash('sha256').update(text).digest('base64url'))
  if (isTooDeep(text)) throw errors.badBody(`${what} is nested too deeply`)
  const value = jsonOf(text)
  refuseUnkeepable(text, value, what)
  return { value, fields }
}

const what = 'The uploaded file'

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) throw errors.badBody('Invalid JSON file')
    throw error
  }
}

/** Every part is read to its end, or the connection would wait for it. */
async function partsOf(
  request: FastifyRequest,
  wanted: string,
): Promise<{ readonly text?: string; readonly fields: ReadonlyMap<string, string> }> {
  const fields = new Map<string, string>()
  let text: string | undefined
  let isJson = true
  try {
    for await (const part of request.parts()) {
      const content = part.type === 'field' ? String(part.value) : decodeText(await part.toBuffer(), what)
      if (part.fieldname !== wanted) {
        if (part.type === 'field') fields.set(part.fieldname, content)
        continue
      }
      text = content
      isJson = part.type === 'field' || /\.json$/i.test(part.filename) || /^application\/json\b/i.test(part.mimetype)
    }
  } catch (error) {
    // Limits have a status of their own; what the parser throws is about bytes that are no form.
    if (error instanceof AppError || (error as { statusCode?: number }).statusCode !== undefined) throw error
    throw Object.assign(errors.badBody('The upload cannot be read'), { cause: error })
  }
  if (!isJson) throw errors.badBody('Invalid file type. Please upload a JSON file')
  return { ...(text !== undefined && { text }), fields }
}

/** Lets the routes of a scope read forms (`application/x-www-form-urlencoded`) as objects of text. 400 for a repeated name. */
export function acceptForms(app: App): void {
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) => {
    const parameters = new URLSearchParams(String(body))
    const names = [...parameters.keys()]
    const repeated = names.find((name, index) => names.indexOf(name) !== index)
    if (repeated === undefined) done(null, Object.fromEntries(parameters))
    else done(new AppError(400, `The parameter '${repeated.slice(0, 40)}' is repeated`))
  })
}
