import { connect } from '/console/extension.js'

const host = await connect()
const [picker, text] = document.querySelectorAll('input')

function show(value) {
  text.value = value ?? ''
  if (/^#[0-9a-f]{6}$/i.test(text.value)) picker.value = text.value
}

function set(value) {
  show(value)
  void host.value.set(value === '' ? null : value)
}

picker.addEventListener('input', () => set(picker.value))
text.addEventListener('input', () => set(text.value))
host.on('value', show)
show(host.context.value)
await host.resize(document.documentElement.scrollHeight)
