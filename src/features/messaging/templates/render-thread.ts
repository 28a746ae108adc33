import { parentPort } from 'node:worker_threads'
import { TemplateError } from '../../../adapters/liquid.ts'
import { type RenderAnswer, type RenderJob, renderSubject, renderTemplate } from './renderer.ts'

/*
 * The other side of renderer.ts: one job after the other, each answered by one message. An error that is not the
 * template's fault is thrown and ends the thread.
 */
parentPort!.on('message', (job: RenderJob) => parentPort!.postMessage(answerTo(job)))
// Loads and compiles what a mail needs, so that it does not count as time of the first template.
renderTemplate({ subject: '', body: '' }, {})
parentPort!.postMessage('ready')

function answerTo({ template, variables, recordedVariables }: RenderJob): RenderAnswer {
  try {
    const recordedSubject = renderSubject(template.subject, recordedVariables ?? variables)
    return { rendered: { ...renderTemplate(template, variables), recordedSubject } }
  } catch (error) {
    if (error instanceof TemplateError) return { problem: error.message }
    throw error
  }
}
