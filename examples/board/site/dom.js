/** An element: `h('a', { href, onclick }, 'text', child)`. Text is text, whatever it holds. */
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(properties))
    if (key.includes('-') || key === 'role') element.setAttribute(key, value)
    else element[key] = value
  element.append(...children.flat().filter((child) => child !== undefined && child !== false))
  return element
}

/** A form that does something with its values; what goes wrong is said. */
export function form(fields, submit, does) {
  const element = h('form', {}, ...fields, h('button', { className: 'primary' }, submit))
  element.addEventListener('submit', async (event) => {
    event.preventDefault()
    await attempt(() => does(Object.fromEntries(new FormData(element)), element))
  })
  return element
}

export const field = (label, properties) => h('label', {}, label, h('input', { required: true, ...properties }))

/** Does something, and says what the server had against it. */
export async function attempt(work) {
  try {
    return await work()
  } catch (error) {
    say(error.message)
  }
}

let forgetting

export function say(text) {
  const says = document.getElementById('says')
  says.textContent = text
  // Shown anew, it is above a dialog that has been opened since.
  says.hidePopover()
  says.showPopover()
  clearTimeout(forgetting)
  forgetting = setTimeout(() => says.hidePopover(), 8000)
}

/** Shows rows as children of an element: those that stay keep their place, and with it what somebody does there. */
export function showRows(element, rows, draw) {
  const old = new Map([...element.children].map((child) => [child.dataset.id, child]))
  const drawn = rows.map((row) => {
    const before = old.get(row.id)
    const text = JSON.stringify(row)
    if (before?.row === text) return before
    return Object.assign(draw(row), { row: text })
  })
  for (const [at, child] of drawn.entries()) {
    child.dataset.id = rows[at].id
    if (element.children[at] !== child) element.insertBefore(child, element.children[at] ?? null)
  }
  while (element.children.length > drawn.length) element.lastElementChild.remove()
}
