import { connect } from '/console/extension.js'

const host = await connect()
const source = document.querySelector('textarea')
const preview = document.querySelector('article')

/** Headings, lists and paragraphs with **strong**, *emphasis* and `code`: as elements, so that nothing written is taken for HTML. */
function rendered(text) {
  return text.split(/\n{2,}/).flatMap((block) => {
    const lines = block.split('\n').filter((line) => line !== '')
    if (lines.length === 0) return []
    const heading = /^(#{1,3}) (.*)$/.exec(lines[0])
    if (heading !== null) return [element(`h${heading[1].length}`, heading[2]), ...rendered(lines.slice(1).join('\n'))]
    if (!lines.every((line) => line.startsWith('- '))) return [element('p', lines.join(' '))]
    const list = document.createElement('ul')
    list.append(...lines.map((line) => element('li', line.slice(2))))
    return [list]
  })
}

const marks = { '**': 'strong', '*': 'em', '`': 'code' }

function element(name, text) {
  const made = document.createElement(name)
  for (const part of text.split(/(\*\*[^*]+\*\*|\*[^*]+\*|`[^`]+`)/)) {
    const mark = Object.keys(marks).find(
      (one) => part.length > 2 * one.length && part.startsWith(one) && part.endsWith(one),
    )
    made.append(mark === undefined ? part : element(marks[mark], part.slice(mark.length, -mark.length)))
  }
  return made
}

function show(value) {
  if (source.value !== value) source.value = value ?? ''
  preview.replaceChildren(...rendered(source.value))
  void host.resize(document.querySelector('main').scrollHeight + 16)
}

source.addEventListener('input', () => {
  void host.value.set(source.value)
  show(source.value)
})
host.on('value', show)
show(host.context.value)
