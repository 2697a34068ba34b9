"""The wheel is of one platform: there is a program in it, but nothing that depends on the version of Python."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class OfOnePlatform(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=OfOnePlatform, cmdclass={"bdist_wheel": AnyPython})
